"""Prints as JSON what TensorBoard's own reader finds in a folder: {tag: [[step, value], ...]}."""

import json
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(error)
    sys.exit(77)

accumulator = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
accumulator.Reload()
scalars = {
    tag: [[event.step, event.value] for event in accumulator.Scalars(tag)]
    for tag in accumulator.Tags()["scalars"]
}
print(json.dumps({"file_version": accumulator.file_version, "scalars": scalars}))
