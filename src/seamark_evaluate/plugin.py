"""What evaluations add to `bench`."""

from seamark.model.plugin import Plugin

PLUGIN = Plugin(
    name="evaluate",
    exports={"evaluation": "seamark_evaluate.cli.export:command"},
    forms={"method": "seamark_evaluate.config.method:METHOD", "task": "seamark_evaluate.config.task:TASK"},
    items="seamark_evaluate.planning.items:QUESTIONS",
    self_test="seamark_evaluate.evaluation.reader_self_test:reader_test",
    moved={
        "seamark_evaluate.drivers.questions:Questions": "seamark.drivers.questions:Questions",
        "seamark_evaluate.server.serve": "seamark.servers.attention.serve",
    },
)
