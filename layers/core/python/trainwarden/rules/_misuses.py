"""What is said of each misuse of a loss function, and what to do about it."""

from __future__ import annotations

TOLD = {
    "double_softmax": (
        "{function} gets rows of probabilities that sum to 1, and applies softmax once more: the "
        "loss cannot come under {floor:.3g} with {classes:.0f} classes"
    ),
    "probabilities_to_nll": "{function} gets probabilities; it expects their logarithms",
    "probabilities_to_kl": "{function} gets probabilities; it expects their logarithms",
    "logits_to_nll": (
        "{function} gets values of {input_min:.3g} to {input_max:.3g}, which are no logarithms of "
        "probabilities: a sample's do not sum to 1"
    ),
    "softmax_of_one": "{function} gets the probability 1 for everything",
    "targets_outside": (
        "{function} gets real numbers for targets, {impossible_targets:.0%} of them outside of "
        "[0, 1]: they go from {target_min:.4g} to {target_max:.4g}"
    ),
    "broadcast": (
        "{function} compares {input_size:.0f} predictions with {target_size:.0f} targets of "
        "another shape: each with every other, by broadcasting"
    ),
    "single_class": "{function} is computed over one class: it is always 0",
    "double_sigmoid": (
        "{function}, which applies sigmoid itself, gets values that all lie in [0, 1] "
        "({input_min:.3g} to {input_max:.3g})"
    ),
    "sigmoid_to_cross_entropy": (
        "{function}, which applies softmax itself, gets values that all lie in [0, 1] "
        "({input_min:.3g} to {input_max:.3g})"
    ),
    "maximised": (
        "{function} is far above a guess over {classes:.0f} classes and only {accuracy:.1%} is "
        "right, less than a guess: the loss is made to rise"
    ),
}
_LOGITS = ("Give the loss raw scores: take the last softmax or sigmoid out of the model.",)
_LOGARITHMS = (
    "Use log_softmax in front of nll_loss and kl_div, or cross_entropy with raw scores.",
    "Check the dimension of the softmax: over the classes, not over the batch.",
)
_ONE = ("For one output use binary_cross_entropy_with_logits; for C classes put out C scores.",)
_SIGN = ("Check the sign of the loss; reward is maximised, loss is minimised.",)
REMEDIES = {
    "double_softmax": _LOGITS,
    "double_sigmoid": (*_LOGITS, "Or use binary_cross_entropy, which expects probabilities."),
    "sigmoid_to_cross_entropy": _LOGITS,
    "probabilities_to_nll": _LOGARITHMS,
    "probabilities_to_kl": _LOGARITHMS,
    "logits_to_nll": _LOGARITHMS,
    "targets_outside": (
        "Use mse_loss or l1_loss for real numbers.",
        "Or give the loss what it is made for: pixels scaled to [0, 1], not standardised.",
    ),
    "broadcast": ("Give both one shape: target.view_as(output) or output.squeeze(-1).",),
    "single_class": _ONE,
    "softmax_of_one": _ONE,
    "maximised": _SIGN,
    "negated": _SIGN,
}
