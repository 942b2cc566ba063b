"""The one place that names facts: scalars the hook adds to a step beside statistics of tensors.

Each collection is a section of docs/statistics.md. A fact that is not there is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Fact(NamedTuple):
    """One fact: ``unit`` ``1`` is a share or a yes, ``x`` the unit of the tensor it is about."""

    name: str
    unit: str
    meaning: str


class Section(NamedTuple):
    """The facts of one collection; ``text`` stands above the table."""

    title: str
    text: str
    facts: tuple[Fact, ...]


LOOP = Section(
    "Facts about the loop",
    "Collection `loop`. Gradients are looked at on two small parameters of each of the first four "
    "optimizers, in backward passes of saved steps. With several optimizers a pass counts for each "
    "that has parameters it reaches. Modules are looked at in the training forward pass.",
    (
        Fact(
            "gradients_carried",
            "1",
            "1 if no backward pass since the last step found its gradients cleared",
        ),
        Fact("backward_passes", "passes", "since the last step of that optimizer, the most"),
        Fact(
            "gradients_discarded",
            "passes",
            "whose gradients were cleared before any optimizer stepped, since the last step; the "
            "first pass of sharpness-aware minimisation counts",
        ),
        Fact("stepped", "1", "0 if a pass counts as a step though no optimizer ever stepped"),
        Fact("parameters", "tensors", "that are trainable, shared ones once"),
        Fact(
            "parameters_without_optimizer",
            "tensors",
            "of these, in no optimizer that stepped or was given; if any, from the third step on",
        ),
        Fact(
            "parameters_without_gradient",
            "tensors",
            "of these, in an optimizer and without a gradient when it stepped",
        ),
        Fact("optimizer_tensors", "tensors", "in all optimizers"),
        Fact("optimizer_tensors_foreign", "tensors", "of these, not of the watched modules"),
        Fact("batchnorms", "modules", "batch normalisation with running statistics"),
        Fact("batchnorms_in_eval", "modules", "of these, in eval mode"),
        Fact(
            "batchnorms_in_eval_trainable", "modules", "of those, with a trainable scale or shift"
        ),
        Fact("batchnorm_momentum_max", "1", "largest momentum of one"),
        Fact("dropouts", "modules", "that drop anything, attention and recurrence included"),
        Fact("dropouts_in_eval", "modules", "of these, in eval mode"),
        Fact("dropout_max", "1", "largest probability of one"),
        Fact(
            "validation_in_training_mode",
            "passes",
            "without gradients, in training mode, on which a loss was computed, since the last "
            "saved step",
        ),
    ),
)
OPTIMIZER = Section(
    "Facts about the optimizer",
    "Collection `optimizer`; GROUP is the number of the parameter group. Those of a second "
    "optimizer are called `1.lr_0` and so on.",
    (
        Fact("lr_GROUP", "1", "learning rate"),
        Fact("weight_decay_GROUP", "1", "weight decay; of the first 32 groups, like the next"),
        Fact("momentum_GROUP", "1", "momentum, or the first of the betas"),
        Fact("eps_GROUP", "1", "what keeps an adaptive optimizer from dividing by 0"),
        Fact("adaptive_GROUP", "1", "1 if updates do not depend on the size of gradients"),
        Fact("decoupled_GROUP", "1", "of Adam: 1 if the decay is no part of the gradient (AdamW)"),
        Fact("train_mode", "1", "1 if a watched module is in training mode"),
        Fact("found_inf", "1", "1 if GradScaler skipped the step"),
        Fact("loss_scale", "1", "GradScaler's scale"),
        Fact("grad_norm", "x", "L2 norm that `clip_grad_norm_` returned last before the step"),
        Fact("clip_limit", "x", "`max_norm` of that call"),
    ),
)
OBJECTIVE = Section(
    "Facts about the objective",
    "Collection `objective`, names `FUNCTION.fact`: one group for each function of "
    "`torch.nn.functional` that computes a loss, also through torch's loss modules and inside "
    "models: `cross_entropy.classes`. The same function with another number of classes is "
    "`cross_entropy:1`. Losses computed by hand have none. Shares are of a sample: at most 256 "
    "rows or 32,768 elements of a call, predictions of up to 2,048 rows (of many classes fewer, at "
    "least 16); at most 8 calls of a training step. Of an evaluation pass `classes`, `accuracy`, "
    "`impossible_targets`, `target_min` and `target_max` are kept, over its batches (the first 64, "
    "then every second, then every fourth, …).",
    (
        Fact("classes", "classes", "size of the class dimension; 2 for binary losses"),
        Fact("accuracy", "1", "share of predictions that are right: largest score, or the sign"),
        Fact("rows_sum_to_one", "1", "share of rows in 0..1 that sum to 1 ± 0.001"),
        Fact("log_rows_sum_to_one", "1", "share of rows whose exponentials sum to 1 ± 0.001"),
        Fact("inside_unit", "1", "share of input elements in 0..1"),
        Fact("negative", "1", "share of input elements below 0"),
        Fact("input_min", "x", "smallest finite input"),
        Fact("input_max", "x", "largest finite input"),
        Fact("input_std", "x", "standard deviation of finite inputs"),
        Fact("input_size", "elements", "of the input, all of it"),
        Fact("target_size", "elements", "of the target, all of it"),
        Fact("broadcast", "1", "1 if input and target of an elementwise loss differ in shape"),
        Fact(
            "impossible_targets",
            "1",
            "share of targets that mean nothing: no class, no probability, NaN",
        ),
        Fact("ignored", "1", "share of targets equal to `ignore_index`"),
        Fact("target_min", "x", "smallest finite target that is not ignored"),
        Fact("target_max", "x", "largest finite target that is not ignored"),
        Fact("target_std", "x", "standard deviation of those"),
        Fact("weighted", "1", "1 with `weight` or `pos_weight`"),
        Fact("smoothing", "1", "`label_smoothing`"),
        Fact("reduction_sum", "1", "1 if losses are added up, not averaged"),
        Fact("unreduced", "1", "1 if each keeps its own, for the loop to weight"),
    ),
)
BATCH = Section(
    "Facts about batches",
    "Collection `batch`, names `input/0.fact`, `output/0.fact` and `label/0.fact`, with the "
    "prefix of the model if several are watched. Features are the columns of a table, the "
    "channels of images, the last dimension of sequences (the second if the model convolves "
    "them). About 32,768 elements of a batch are looked at: samples evenly spread over it, at "
    "least 16, and of images and sequences fewer pixels and positions; at most 4,096 features, "
    "evenly spread. Those of inputs down to `nonfinite` are cumulated over the saved steps so "
    "far; NaN and infinity are counted and left out. Of an evaluation pass `seen`, `mean`, `std`, "
    "`apart` and `wider` are kept, over its first 8 batches. Of labels, of one class a sample, "
    "the first 256 of a batch are looked at, of inputs of more than 128 elements fewer, at least "
    "16; 8,192 different samples are remembered. Bytes of images are data, other integers are "
    "tokens.",
    (
        Fact("features", "features", "of the input, those not looked at included"),
        Fact("seen", "samples", "looked at so far"),
        Fact("mean", "x", "mean of all elements"),
        Fact("std", "x", "standard deviation of all elements"),
        Fact("min", "x", "smallest element"),
        Fact("max", "x", "largest element"),
        Fact("feature_mean_max", "x", "largest absolute mean of a feature"),
        Fact("feature_std_max", "x", "largest standard deviation of a feature"),
        Fact("feature_std_min", "x", "smallest one of a feature that is not constant"),
        Fact("constant_features", "features", "that had a single value so far"),
        Fact(
            "duplicated_features",
            "features",
            "that were equal to one before them in every batch, and vary; among 256 candidates",
        ),
        Fact(
            "correlation_max",
            "1",
            "largest absolute correlation of two features, among 64 that varied in the first "
            "batch; from 32 rows on; of later batches every fourth counts",
        ),
        Fact("nonfinite", "elements", "NaN or infinite so far"),
        Fact("samples", "samples", "of this batch, those not looked at included"),
        Fact(
            "duplicated_samples", "1", "share of this batch's first 256 that equal an earlier one"
        ),
        Fact(
            "shift",
            "1",
            "mean over features of |mean of this batch - mean of the first 256 samples| / their "
            "standard deviation",
        ),
        Fact(
            "apart",
            "1",
            "of an evaluation pass: mean over features of |mean - mean in training so far| / "
            "standard deviation in training; without features whose ends there lie more than 10 "
            "standard deviations apart",
        ),
        Fact("wider", "1", "of one: geometric mean of its features' std / std in training"),
        Fact("repeated", "samples", "of labels: whose very input was seen before, so far"),
        Fact("relabelled", "1", "of labels: share of these whose label was another the last time"),
        Fact(
            "by_chance",
            "1",
            "of labels: that share if labels did not belong to inputs, from all pairs so far",
        ),
        Fact("tokens", "tokens", "of an integer input that were counted"),
        Fact("distinct_tokens", "tokens", "different ones among them"),
        Fact(
            "batch_spread",
            "1",
            "of an output: root of its mean variance over the batch / RMS of the output; 0 if all "
            "samples are alike",
        ),
        Fact("cosine", "1", "of an output: mean cosine of two samples, among 64"),
    ),
)
WINDOW = Section(
    "Facts about the steps between",
    "Collection `window`: all training steps since the last saved one, this one included. The loss "
    "is the mean of the loss module's values in a step, or the sum of what `backward()` was called "
    "on.",
    (
        Fact("steps", "steps", "in the window"),
        Fact("loss_mean", "loss", "mean of the finite losses"),
        Fact("loss_min", "loss", "smallest of them"),
        Fact("loss_max", "loss", "largest of them"),
        Fact("loss_max_step", "step", "where that was"),
        Fact("nonfinite_losses", "steps", "whose loss was NaN or infinite"),
        Fact("nonfinite_step", "step", "the first of those"),
        Fact("clipped", "1", "share of the calls of `clip_grad_norm_` that shortened"),
        Fact("grad_norm_max", "x", "largest norm that one returned"),
    ),
)
HISTORY = Section(
    "Facts about what led there",
    "Collection `history`, at a step whose loss is NaN, infinite or a spike (above 10 medians of "
    "the last losses and above all of them), or whose clipped norm is not finite: that step is "
    "saved whatever the interval. At most 8 such steps in a run, 32 steps apart; the first NaN at "
    "any time.",
    (
        Fact("loss@STEP", "loss", "of the last 32 steps"),
        Fact("lr_0@STEP", "1", "learning rate then"),
        Fact("grad_norm@STEP", "x", "norm that `clip_grad_norm_` returned then"),
        Fact(
            "order@TENSOR",
            "rank",
            "from 0, of the first 8 tensors that are not finite in the order of computation: "
            "weights (as before the step), inputs, operation, activations and outputs, loss, "
            "gradients from the last layer backwards",
        ),
        Fact(
            "order@operation/MODULE.OP",
            "rank",
            "operation OP, in or after MODULE, made the first NaN or infinity; "
            "`loss_operation/…` if it belongs to the loss, `data/…` if OP was given one from "
            "outside the model",
        ),
    ),
)
CAPTURE = Section(
    "Facts about the capture",
    "Collection `capture`, at a saved step that costs less, or before which others were left out, "
    "to stay within `max_overhead`, that is saved because somebody asked for detail, or of which a "
    "collection rests.",
    (
        Fact("sampled", "1", "large tensors were measured from samples at this step"),
        Fact("left_out", "steps", "that the schedule wanted since the last saved one"),
        Fact("share", "1", "of the time since the free saved steps that later ones took"),
        Fact("request", "1", "number of the request for which the step is saved, the first is 1"),
        Fact("request_left", "steps", "for which that request still holds"),
        Fact("raw", "tensors", "saved as they are with this step"),
        Fact(
            "resting.NAME", "1", "collection `NAME` has steps of its own, and this is none of them"
        ),
    ),
)
SECTIONS: Mapping[str, Section] = {
    "loop": LOOP,
    "optimizer": OPTIMIZER,
    "objective": OBJECTIVE,
    "batch": BATCH,
    "window": WINDOW,
    "history": HISTORY,
    "capture": CAPTURE,
}
TABLES = """\
## Side tables

Counts of classes ride with a step, at most 1,000 different ones each, in training and evaluation:

| name | counts |
| --- | --- |
| `label/0` | labels by class, of all targets |
| `predicted/0` | predictions by class, sampled as in *Facts about the objective* |
| `correct/0` | right predictions by class |
| `confusion/0` | pairs, up to 30 classes: label · classes + predicted |
| `ranked/0` | XGBoost, binary: 2 · rank of the score + label, up to 100 ranks |
| `input/0` | tokens of an integer input, the most frequent; of evaluation the first 8 batches |

A second classifier in a step has `predicted/1` and so on.
"""
