"""How fast is the dual of a support vector machine by box_qp, beside scikit-learn's SVC (LIBSVM), at an equal objective?"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from common import interleave, machine_line, peak_bytes, print_table
from sklearn.datasets import make_classification
from sklearn.svm import SVC

import torchpairwise as tp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--features", type=int, default=16)
    arguments = parser.parse_args()
    n, d = arguments.samples, arguments.features
    print(machine_line())
    X, classes = make_classification(n, d, n_informative=d // 2, flip_y=0.05, random_state=0)
    X, y = X.astype(np.float32), 2.0 * classes - 1
    features, labels = torch.from_numpy(X), torch.from_numpy(y).float()
    Q = tp.lazy(features, metric="rbf", gamma=1 / d).weight_rows(labels).weight_columns(labels)
    rows = []
    for C in (1.0, 10.0):

        def ours(C: float = C) -> tp.optimize.BoxQPResult:
            return tp.optimize.box_qp(Q, -torch.ones(n), lower=0.0, upper=C, equality=(labels, 0.0))

        def theirs(C: float = C) -> SVC:
            return SVC(C=C, gamma=1 / d, cache_size=200).fit(X, y)

        model = theirs()
        alpha = torch.zeros(n)
        alpha[torch.from_numpy(model.support_).long()] = torch.from_numpy(np.abs(model.dual_coef_[0])).float()
        objectives = {"ours": float(ours().objective), "SVC": float(0.5 * alpha @ (Q @ alpha) - alpha.sum())}
        times = interleave({"ours": ours, "SVC": theirs}, repeats=3)
        for name, (median, least) in times.items():
            rows.append(
                {
                    "C": f"{C:g}",
                    "candidate": name,
                    "median s": f"{median:.2f}",
                    "least s": f"{least:.2f}",
                    "objective": f"{objectives[name]:.4f}",
                    "rounds": str(ours().iterations) if name == "ours" else "",
                }
            )
    print_table(f"dual of a support vector machine, rbf, float32, N = {n}, D = {d}, gap 1e-3", rows)
    setup = f"X, y = torch.randn({n}, {d}), torch.randn({n}).sign()\nQ = tp.lazy(X, metric='rbf').weight_rows(y).weight_columns(y)"
    call = f"return tp.optimize.box_qp(Q, -torch.ones({n}), lower=0.0, upper=1.0, equality=(y, 0.0), max_iter=20)"
    print(f"peak memory of ours beyond inputs and outputs: {peak_bytes(setup, call, f'{n * 4}') / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
