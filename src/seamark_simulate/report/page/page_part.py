"""What simulation adds to the page of a scenario."""

from seamark.report.page.page_part import PagePart
from seamark_simulate.report.page.policies import policy_blocks
from seamark_simulate.report.page.predictions import prediction_blocks
from seamark_simulate.report.page.schedules import schedule_blocks

PAGE = PagePart(
    id="predictions",
    title="Predicted and measured",
    first_blocks=(policy_blocks,),
    last_blocks=(schedule_blocks,),
    own_blocks=(prediction_blocks,),
)
