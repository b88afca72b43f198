"""Server of transformers models: the OpenAI completions API with the fields context, question and attention."""
