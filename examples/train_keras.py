"""A small Keras network that tells digits apart, with a learning rate far too high.

python examples/train_keras.py                        # records to .trainwarden/runs
python examples/train_keras.py --learning-rate 1e-3   # learns

On another backend: KERAS_BACKEND=jax python examples/train_keras.py
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
from sklearn.datasets import load_digits

import trainwarden


def main() -> None:
    """Train, and print the accuracy on other digits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--learning-rate", type=float, default=3.0)
    arguments = parser.parse_args()
    keras.utils.set_random_seed(0)
    x, y = load_digits(return_X_y=True)
    x = x.astype("float32") / 16.0
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(arguments.learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(
        x[:1200],
        y[:1200],
        batch_size=48,
        epochs=arguments.epochs,
        validation_data=(x[1200:], y[1200:]),
        callbacks=[trainwarden.KerasCallback(inputs=x[:1200])],
        verbose=0,
    )
    print({"validation accuracy": round(history.history["val_accuracy"][-1], 3)})


if __name__ == "__main__":
    main()
