"""Sphinx settings, and the steps that run before each build: the registry's tables and the drawn figure."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

from build_steps import docstrings, registry_tables, tile_figure

import torchpairwise

project = "torchpairwise"
author = "The torchpairwise authors"
copyright = "2026, The torchpairwise authors"
release = torchpairwise.__version__
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
# The tables are parts of api.md; of what the build writes, generated/names.md alone is a page.
exclude_patterns = ["_build", "README.md", "sg_execution_times.rst", *(f"generated/{name}" for name in registry_tables.TABLES)]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

autosummary_generate = ["generated/names.md"]
templates_path = ["_templates"]
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

sphinx_gallery_conf = {
    "examples_dirs": "../gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": "/plot_",
    "ignore_pattern": r"README\.md",
    "min_reported_time": 5,
    "remove_config_comments": True,
    "show_memory": False,
    "download_all_examples": False,
}
# plt.show() in an example draws into the page.
warnings.filterwarnings("ignore", message=".*FigureCanvasAgg is non-interactive.*")

html_theme = "pydata_sphinx_theme"
html_title = "torchpairwise"
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
}
html_show_sourcelink = False
html_sidebars = {"index": [], "concepts": [], "precision": [], "api": [], "DECISIONS": []}

# The settings of sphinx-gallery hold objects that are not cached.
suppress_warnings = ["config.cache"]


def _write_generated(app: Sphinx, _config: object) -> None:
    generated = Path(app.srcdir) / "generated"
    generated.mkdir(exist_ok=True)
    registry_tables.write_all(generated)
    tile_figure.draw(generated / "tiles.svg")


def setup(app: Sphinx) -> None:
    # Before the pages are looked for.
    app.connect("config-inited", _write_generated)
    # Before napoleon (priority 500) makes markup of the sections.
    app.connect("autodoc-process-docstring", docstrings.process, priority=400)
    app.connect("autodoc-skip-member", docstrings.skip)
