"""What other toolkits call settings: one table for all suggestions, of fairseq, OpenNMT-py, JoeyNMT, Marian and Hugging Face.

A name of another toolkit is never accepted, only answered with ours. Options of other programs are found without their dashes.
docs/how-to/coming-from-other-toolkits.md has whole tables.
"""

LAYERS = "model.num_encoder_layers and model.num_decoder_layers"
OTHER_NAMES = {
    ("d", "dim", "dim_emb", "emb_size", "embedding_dim", "encoder_embed_dim", "decoder_embed_dim", "hidden_dim"): "model.d_model",
    ("hidden", "hidden_size", "model_dim", "word_vec_size"): "model.d_model",
    ("decoder_ffn_embed_dim", "encoder_ffn_embed_dim", "encoder_ffn_dim", "decoder_ffn_dim"): "model.d_ff",
    ("ff", "ff_size", "ffn", "ffn_dim", "dim_feedforward", "transformer_dim_ffn", "transformer_ff"): "model.d_ff",
    ("heads", "head", "n_heads", "nhead", "attention_heads", "transformer_heads"): "model.num_heads",
    ("encoder_attention_heads", "decoder_attention_heads"): "model.num_heads",
    ("layers", "layer", "n_layers", "num_layers", "depth"): LAYERS,
    ("enc_layers", "enc_depth", "encoder_layers"): "model.num_encoder_layers",
    ("dec_layers", "dec_depth", "decoder_layers"): "model.num_decoder_layers",
    ("arch", "architecture", "model_type", "type"): "model.family",
    ("layer_norm", "normalize_before", "encoder_normalize_before", "decoder_normalize_before"): "model.norm",
    ("share_embeddings", "share_all_embeddings", "tied_embeddings", "tied_embeddings_all", "tied_softmax"): "model.tie",
    ("share_decoder_embeddings", "share_decoder_input_output_embed"): "model.tie",
    ("transformer_dropout",): "model.dropout",
    ("transformer_dropout_attention",): "model.attention_dropout",
    ("transformer_dropout_ffn",): "model.activation_dropout",
    ("transformer_ffn_activation", "activation_fn"): "model.activation",
    ("vocab", "vocab_size", "src_vocab_size", "tgt_vocab_size", "bpe_size"): "data.vocabulary_size",
    ("src_seq_length", "tgt_seq_length", "max_len", "max_sent_length"): "data.max_length",
    ("level",): "data.source_units and data.target_units",
    ("lr", "learn_rate", "base_lr"): "train.learning_rate",
    ("lr_scheduler", "lr_scheduler_type", "scheduling", "decay_method", "scheduler"): "train.schedule",
    ("warmup", "lr_warmup", "learning_rate_warmup", "warmup_updates", "warmup_ratio"): "train.warmup_steps",
    ("batch", "batch_size", "batchsize", "bsz", "max_tokens", "mini_batch", "mini_batch_words"): "train.tokens_per_batch",
    ("accum", "accum_count", "accumulation", "batch_multiplier", "grad_accum", "update_freq"): "train.tokens_per_batch",
    ("gradient_accumulation_steps", "optimizer_delay", "per_device_train_batch_size"): "train.tokens_per_batch",
    ("epoch", "max_epoch", "max_epochs", "num_epochs", "num_train_epochs", "n_epochs"): "train.epochs",
    ("max_step", "max_steps", "max_update", "max_updates", "train_steps", "updates", "iterations", "num_steps"): "train.steps",
    ("early_stopping", "early_stop", "early_stopping_patience"): "train.patience",
    ("clip", "clip_grad", "clip_grad_norm", "grad_clip", "max_grad_norm"): "train.clip_norm",
    ("valid_steps", "valid_freq", "validation_freq", "eval_steps", "eval_every"): "train.validate_every",
    ("save_checkpoint_steps", "save_freq", "save_steps", "save_interval", "save_every"): "train.checkpoint_every",
    ("logging_steps", "report_every", "log_interval", "logging_freq"): "train.log_every",
    ("adam_beta1", "adam_betas"): "train.beta1",
    ("adam_beta2",): "train.beta2",
    ("adam_eps", "adam_epsilon", "eps"): "train.epsilon",
    ("optim", "opt"): "train.optimizer",
    ("wd",): "train.weight_decay",
    ("label_smoothing_factor", "smoothing", "criterion"): "train.label_smoothing",
    ("average_decay", "exponential_smoothing"): "train.ema",
    ("random_seed",): "train.seed",
    ("fp16", "bf16", "amp", "mixed_precision"): "train.precision",
    ("beam_size", "num_beams", "beams"): "search.beam",
    ("beam_alpha", "lenpen"): "search.alpha",
}  # fmt: skip
OURS = {other: ours for others, ours in OTHER_NAMES.items() for other in others}


def our_name(name: str) -> str:
    """What a setting of another toolkit is called here, with its section; empty if the name is not known."""
    key = name.rpartition(".")[2]
    return OURS.get(key.lstrip("-").replace("-", "_").lower(), "")
