"""What every language run loads, loaded once in the fork server, so that a run costs no start-up."""

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, DynamicCache  # noqa: F401
from transformers.models.qwen2 import modeling_qwen2  # noqa: F401

from . import simulation  # noqa: F401
