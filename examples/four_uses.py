"""The four uses of one fitted model, on iris with a tenth of the cells missing.

Run it with `python examples/four_uses.py`.
"""

import numpy as np
from sklearn.datasets import load_iris

from bayesgen import GaussianNB

iris = load_iris(as_frame=True)
truth, species = iris.data, iris.target_names[iris.target]

# Make holes at random: one cell in ten is not known.
holes = np.random.default_rng(0).random(truth.shape) < 0.1
table = truth.mask(holes)
print(f"{len(table)} flowers, {int(holes.sum())} of {table.size} cells missing")

# Gaussian naive Bayes trains on the cells that are there.
clf = GaussianNB(method="posterior", random_state=0).fit(table, species)

# 1. Classify, and say how sure.
honest = clf.loo_predict_proba()  # each flower by the model that did not see it
print(f"\nright for {np.mean(clf.classes_[honest.argmax(1)] == species):.0%} of the flowers, each left out in turn")
low, high = clf.predict_proba_interval(table)
row = int(np.argmax((high - low).max(axis=1)))
print(f"least settled is flower {row} ({species[row]}):")
for name, p, a, b in zip(clf.classes_, clf.predict_proba(table)[row], low[row], high[row], strict=True):
    print(f"  {name:10s} {p:.2f} [{a:.2f}, {b:.2f}]")

# 2. Fill in: here the truth is known.
filled = clf.impute(table)
error = np.abs(filled.to_numpy() - truth.to_numpy())[holes].mean()
crude = np.abs(table.mean().to_numpy() - truth.to_numpy())[holes].mean()
print(f"\nfilled cells are off by {error:.2f} cm on average; column means would be off by {crude:.2f} cm")

# 3. Generate: three new flowers of one species.
rows, _ = clf.sample(3, y="versicolor")
print("\nsynthetic versicolor:")
print(rows.round(1).to_string(index=False))

# 4. Flag: one flower with a typing error, a decimal point too far to the right.
wrong = truth.iloc[[70]].assign(**{"sepal width (cm)": 32.0})
print(f"\np-value of a flower: {clf.outlier_pvalues(truth.iloc[[70]])[0]:.2f}", end="")
print(f"; with its sepal width mistyped: {clf.outlier_pvalues(wrong)[0]:.4f}")
