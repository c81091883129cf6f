"""A front end for vLLM: it speaks OpenAI's protocol, and makes tokens and features in place of the engine."""
