"""What to do about each kind of trouble with a learning-rate schedule."""

from __future__ import annotations

REMEDIES = {
    "per_batch": (
        "Call scheduler.step() once an epoch, after the loop over batches.",
        "Or keep it in the loop and give its milestones, step size or T_max in batches.",
        "With ReduceLROnPlateau, step on the validation loss, with mode='min'.",
    ),
    "restart": (
        "Lower the rate that the restart goes back to, or end the schedule with the run.",
        "Set T_max of a cosine schedule to the whole run: beyond it the rate rises again.",
    ),
    "rising": (
        "Check the sign of the schedule: a gamma above 1 makes the rate grow without end.",
        "Go back to the checkpoint before the loss rose, with the rate of that step.",
    ),
    "uncapped": (
        "End the warm-up: min(1, (step + 1) / warmup_steps), then keep or decay the rate.",
        "Go back to the checkpoint before the loss rose, with the rate of that step.",
    ),
    "cycle": (
        "Give the length of a cycle (T_max, step_size_up) in batches, of many epochs' length.",
        "Lower the top of the cycle 10 times.",
    ),
    "no_warmup": (
        "Warm the rate up linearly from 0 over the first few hundred to few thousand steps.",
        "Use a peak rate 10 times lower, or layer normalisation before each block.",
    ),
}
