"""One model of a mixed table: bicycles in a repair shop, quick jobs and long ones.

The table is made up: categories, booleans, counts and numbers, with a tenth of the cells missing. Because it is made up,
the filled cells can be compared with the truth. Run it with `python examples/mixed_table.py`.
"""

import numpy as np
import pandas as pd

from bayesgen import MixedNB

rng = np.random.default_rng(7)
n = 300
job = rng.choice(["long", "quick"], n, p=[0.4, 0.6])
long = job == "long"
kinds = ["cargo", "city", "mountain", "race"]
truth = pd.DataFrame(
    {
        "kind": [str(rng.choice(kinds, p=[0.3, 0.3, 0.3, 0.1] if slow else [0.05, 0.6, 0.15, 0.2])) for slow in long],
        "electric": rng.random(n) < np.where(long, 0.5, 0.2),
        "age_years": rng.gamma(4.0, np.where(long, 2.2, 1.2)),
        "earlier_repairs": rng.poisson(np.where(long, 5.0, 3.0)),
    }
).astype({"electric": "boolean", "earlier_repairs": "Int64"})  # these dtypes have room for missing cells
holes = rng.random(truth.shape) < 0.1
table = truth.mask(holes)
print(f"{n} bicycles, {holes.sum()} of {table.size} cells missing")

# Fit without preparing anything. Ages are skewed: their logarithm would be closer to normal.
clf = MixedNB(method="posterior", random_state=0).fit(table, job)
print("\nfamilies chosen:")
for columns, family in clf.blocks_:
    print(f"  {type(family).__name__:11s} {', '.join(columns)}")

# 1. Classify, and say how sure.
honest = clf.loo_predict_proba()  # each bicycle by the model that did not see it
print(f"\nright for {np.mean(clf.classes_[honest.argmax(1)] == job):.0%} of the bicycles, each left out in turn")
low, high = clf.predict_proba_interval(table)
row = int(np.argmax((high - low)[:, 0]))
print(f"least settled is bicycle {row}:")
print(table.iloc[[row]].round(1).to_string(index=False))
for name, p, a, b in zip(clf.classes_, clf.predict_proba(table)[row], low[row], high[row], strict=True):
    print(f"  {name:6s} {p:.2f} [{a:.2f}, {b:.2f}]")

# 2. Why? The log odds of a long job, taken apart.
evidence = clf.explain(table.iloc[[row]], reference="quick")
print("\nits evidence for a long job, in log odds:")
print(evidence[["feature", "log_ratio", "low", "high"]].round(2).to_string(index=False))
print(f"  sum {evidence['log_ratio'].sum():+.2f}")

# 3. Generate: new rows with the dtypes of the table.
rows, jobs = clf.sample(4, y=["long", "long", "quick", "quick"])
print("\nsynthetic bicycles:")
print(rows.round(1).assign(job=jobs).to_string(index=False))
print("same dtypes as the table:", (rows.dtypes == table.dtypes).all())

# 4. Fill in, and compare with the truth.
filled = clf.impute(table, y=job)
print("\nfilled in:")
shown = np.flatnonzero(holes.any(axis=1))[:4]
print(pd.concat([table.iloc[shown], filled.iloc[shown]], keys=["table", "filled"]).round(1).to_string())
missing = holes[:, truth.columns.get_loc("age_years")]
error = (filled["age_years"] - truth["age_years"])[missing].abs().mean()
crude = (table["age_years"].mean() - truth["age_years"])[missing].abs().mean()
print(f"filled ages are off by {error:.1f} years on average; the mean of the column would be off by {crude:.1f}")

# 5. Flag: a typing error in a count.
wrong = truth.iloc[[0]].assign(earlier_repairs=pd.array([33], dtype="Int64"))
print(f"\np-value of bicycle 0: {clf.outlier_pvalues(truth.iloc[[0]])[0]:.2f}", end="")
print(f"; with 33 earlier repairs: {clf.outlier_pvalues(wrong)[0]:.4f}")
