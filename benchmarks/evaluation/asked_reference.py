"""A recipe that asks the reference server the questions of a task: a model of no cost whose times are known."""

RECIPE = """\
extends: known.yaml
name: {name}
component: evaluation
load: finite
limit_s: 600
typical_load_s: 1
driver: seamark_evaluate.drivers.questions:Questions
judge: seamark_evaluate.drivers.questions:judge
qualities:
  score: {{range: [0, 1], help: Score of an answer.}}
settings:
  model: {{type: str, role: deployment, required: true, help: Name of the model.}}
  task: {{type: structure, role: workload, required: true, help: Task.}}
  max_requests: {{type: int, role: workload, default: null, help: Number of questions.}}
  max_new_tokens: {{type: int, role: workload, default: null, help: Longest answer.}}
"""
