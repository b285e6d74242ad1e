"""How many tokens each expert of a mixture of experts got in a validation, for the training output and the model card.

Knows the counts by the name of the layer, such as `encoder.0`, and not how experts are chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transduce.run_log import Event


@dataclass(frozen=True)
class LayerShares:
    """The tokens that each expert of a layer got."""

    layer: str  # with the layers of each stack counted from 1: `encoder layer 1`
    tokens: Sequence[int]

    @property
    def mean(self) -> float:
        return sum(self.tokens) / len(self.tokens)

    @property
    def variation(self) -> float:
        """The squared coefficient of variation, which the loss of a mixture of experts keeps small."""
        mean = self.mean or 1.0
        return sum((count / mean - 1) ** 2 for count in self.tokens) / len(self.tokens)


def layer_shares(counts: Mapping[str, Sequence[int]]) -> list[LayerShares]:
    return [LayerShares(_shown(name), tokens) for name, tokens in counts.items() if tokens]


def _shown(name: str) -> str:
    stack, number = name.rsplit(".", 1)
    return f"{stack} layer {int(number) + 1}"


def shares_line(counts: Mapping[str, Sequence[int]]) -> str:
    """One line about the layer whose experts have the least equal shares."""
    worst = max(layer_shares(counts), key=lambda layer: layer.variation)
    return (
        f"experts: each of the {len(worst.tokens)} in {worst.layer} got {min(worst.tokens):,} to {max(worst.tokens):,} tokens of the "
        f"validation data (mean {worst.mean:,.0f}); this layer has the least equal shares"
    )


def shares_section(events: Sequence[Event]) -> list[str]:
    """A section of the model card about the last validation that counted tokens; nothing for models without experts."""
    counted = [event for event in events if event.get("tokens_of_experts")]
    if not counted:
        return []
    last = counted[-1]
    return [
        "## Tokens of each expert",
        "",
        f"In the validation after step {last['step']:,}. The more equal the shares, the better: an expert that gets few tokens learns little.",
        "",
        "| layer | experts | fewest tokens | mean | most tokens |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {one.layer} | {len(one.tokens)} | {min(one.tokens):,} | {one.mean:,.0f} | {max(one.tokens):,} |"
            for one in layer_shares(last["tokens_of_experts"])
        ),
        "",
    ]
