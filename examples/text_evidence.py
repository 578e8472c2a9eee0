"""Which words decided? Naive Bayes on word counts, with the evidence behind each answer.

Run it with `python examples/text_evidence.py`.
"""

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import log_loss

from bayesgen import BernoulliNB, MultinomialNB
from bayesgen.data import load_messages

messages = load_messages()
train, test = messages[:300], messages[300:].reset_index(drop=True)

# Word counts, sparse from beginning to end. Words that occur in one training message only are left out.
vectorizer = CountVectorizer(min_df=2)
X, X_test = vectorizer.fit_transform(train["text"]), vectorizer.transform(test["text"])
words = vectorizer.get_feature_names_out()
print(f"{X.shape[0]} messages to a library, {X.shape[1]} words, {X.nnz / X.shape[0] / X.shape[1]:.1%} of the cells not zero")

# The flat prior, alpha=0: its predictive adds one to every count.
clf = MultinomialNB(alpha=0, method="posterior", random_state=0).fit(X, train["topic"])
binary = BernoulliNB(alpha=0, binarize=0, method="posterior", random_state=0).fit(X, train["topic"])
print(f"\n{len(test)} more messages, held out:")
for model in (clf, binary):
    proba = model.predict_proba(X_test)
    name, right = type(model).__name__, model.score(X_test, test["topic"])
    print(f"  {name:13s} right for {right:.0%}, log-loss {log_loss(test['topic'], proba):.2f}")

# The words that lead furthest over every other class.
print("\nwords of each topic:")
logs = np.log(clf.params_["prob"])
for k, name in enumerate(clf.classes_):
    lead = logs[k] - np.delete(logs, k, axis=0).max(axis=0)
    print(f"  {name:9s} {', '.join(words[np.argsort(-lead.round(6), kind='stable')[:8]])}")


def tell(model, row, against=None, count=6):
    """Print why `model` takes its most probable class for held-out message `row`, and not another: by default the next."""
    x = X_test[[row]]
    logs = model.predict_log_proba(x)[0]
    second, first = np.argsort(logs)[-2:]
    if against is not None:
        second = model.classes_.tolist().index(against)
    print(f"\n{test['text'][row]}")
    print(f"  filed under {test['topic'][row]}; ", end="")
    print(", ".join(f"{model.classes_[k]} {np.exp(logs[k]):.2f}" for k in (first, second)))
    table = model.explain(x, reference=model.classes_[second], feature_names=words)
    table = table[table["class"] == model.classes_[first]].set_index("feature")
    special = [feature for feature in table.index if feature in ("(prior)", "(absent)")]
    terms = table.drop(index=special).sort_values("log_ratio", key=abs, ascending=False)
    rest = terms["log_ratio"][count:]
    print(f"  {'':14s} for {model.classes_[first]}, against {model.classes_[second]}, with 90% intervals")
    for feature, term in [*table.loc[special].iterrows(), *terms[:count].iterrows()]:
        print(f"  {feature:14s}{term['log_ratio']:+6.1f}  [{term['low']:+.1f}, {term['high']:+.1f}]")
    print(f"  {f'{len(rest)} more words':14s}{rest.sum():+6.1f}")
    # The draws of the log odds as a whole give the interval of the total.
    draws = np.log(model.predict_proba_draws(x)[:, 0])
    low, high = np.quantile(draws[:, first] - draws[:, second], [0.05, 0.95])
    print(f"  {'log odds':14s}{table['log_ratio'].sum():+6.1f}  [{low:+.1f}, {high:+.1f}]")
    assert np.isclose(table["log_ratio"].sum(), logs[first] - logs[second])
    return terms


# An answer that is right and sure, and one that is wrong: "room", "our" and "we" sound like a booking.
print("\nMultinomialNB, the evidence:")
tell(clf, 89)
tell(clf, 30, against="technical")

# The same by BernoulliNB: all the words that are not in the message are one piece of evidence.
print("\nBernoulliNB, the evidence:")
tell(binary, 89)

# Where the classifier does not know although it knows the words, all but two: the smallest lead of the first class.
analyse = vectorizer.build_analyzer()
unknown = [[word for word in analyse(text) if word not in vectorizer.vocabulary_] for text in test["text"]]
proba = np.sort(clf.predict_proba(X_test), axis=1)
lead = np.where([len(new) <= 2 for new in unknown], proba[:, -1] - proba[:, -2], np.inf)
unsure = int(np.argmin(lead))
print("\nMultinomialNB, unsure:")
terms = tell(clf, unsure)
for side, part in (("for it", terms[terms["log_ratio"] > 0.2]), ("against it", terms[terms["log_ratio"] < -0.2])):
    print(f"  {side}: {', '.join(part.index)}")
print(f"  not in the vocabulary: {', '.join(unknown[unsure]) or 'none'}")
