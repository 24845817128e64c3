"""The Django project. Never imports torch, ray or vllm."""
