"""What is said of a model that its optimizer does not move, and what to do about it."""

from __future__ import annotations

TOLD = {
    "step_missing": "gradients are computed and thrown away, no optimizer has taken one step",
    "zeroed_before_step": (
        "the gradients are thrown away between backward() and optimizer.step(), which finds none"
    ),
    "foreign_tensors": (
        "the optimizer holds other tensors than the model's: {foreign:.0f} of its {held:.0f} are "
        "foreign, and {left:.0f} of the model's {own:.0f} are in no optimizer"
    ),
    "output_layer_left_out": (
        "the last layer is in no optimizer and does not move, though its gradient is not 0"
    ),
    "layers_left_out": (
        "{left:.0f} of the model's {own:.0f} tensors are in no optimizer; {name} among them gets "
        "gradients and still lies as it was drawn"
    ),
    "zero_learning_rate": "every learning rate is 0 and was never anything else",
    "no_change": (
        "no weight changes in one bit, though learning rate and gradients are large enough: "
        "the steps are taken on other tensors, or undone"
    ),
}
REMEDIES = {
    "step_missing": ("Call optimizer.step() after each backward().",),
    "zeroed_before_step": ("Call optimizer.zero_grad() before backward(), not after it.",),
    "zero_learning_rate": ("Check the scheduler: its factor is 0 from the start.",),
    "output_layer_left_out": ("Give the optimizer the parameters of the last layer too.",),
    "layers_left_out": (
        "Give the optimizer the parameters of the whole model.",
        "If these layers are to stay random, set requires_grad_(False) on them.",
    ),
}
