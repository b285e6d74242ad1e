"""The settings that can be combined with several shards. Imports no torch."""

from transduce.config import Config, TrainConfig
from transduce.config.support import ANY, Supports, Values
from transduce.errors import SettingError

# The training settings that shards know; everything else must stand at its default.
_NUMBERS = (
    "steps", "epochs", "minutes", "tokens_per_batch", "positions_per_microbatch", "learning_rate", "warmup_steps", "beta1",
    "beta2", "epsilon", "weight_decay", "label_smoothing", "r_drop", "clip_norm", "validate_every", "validate_lines",
    "checkpoint_every", "log_every", "average", "ema", "patience", "seed", "threads", "start_from", "shards",
    "process_timeout",
)  # fmt: skip
_CHOICES: dict[str, Values] = {
    "layout": ("auto", "padded", "pages"),
    "optimizer": ("adam", "adamw", "muon"),
    "schedule": ("inverse_sqrt", "linear", "cosine", "constant"),
    "precision": ("auto", "fp32", "bf16"),
    "device": ("auto", "cpu", "cuda"),
    "best_metric": ANY,  # decides which weights are the best, and not how they are computed
}
SUPPORTS = Supports(TrainConfig, dict.fromkeys(_NUMBERS, ANY) | _CHOICES, section="train")


def refuse_unsupported(config: Config) -> None:
    """Refuse settings that cannot be combined with several shards; a run with one shard can have any."""
    shards = config.train.shards
    if shards & (shards - 1):
        raise SettingError(f"train.shards = {shards}: must be a power of two, such as {1 << shards.bit_length() - 1}")
    if shards > 1 and (refused := SUPPORTS.refusal(config.train)):
        raise SettingError(f"{refused}: not supported together with train.shards = {shards}; set train.shards=1")
