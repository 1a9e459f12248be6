"""Sphinx configuration of the documentation site. `./scripts/docs` builds it; it needs no network.

The source folder is the repository itself, so that README.md and CONTRIBUTING.md are pages too, and links between files
work both on a code host and on the site.
"""

from importlib.metadata import version as version_of

project = "Coterie"
author = "the Coterie contributors"
copyright = author
version = release = version_of("coterie")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "docs/**.md"]
exclude_patterns = [".*", "build", "dist", "runs", "src", "tests", "benchmarks", "examples", "scripts"]

myst_heading_anchors = 4  # generates the same anchors as a code host, for links such as data.md#views
suppress_warnings = ["myst.header"]  # parts of the reference start at the heading level of their place

nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures: most are not part of the reference
default_role = "code"  # docstrings write `names` as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "separated"  # the arguments of Peer are internal, and fill a screen
smartquotes_action = "q"  # but no smart dashes: `--out` is an option

html_theme = "furo"
html_title = "Coterie"
html_static_path = ["static"]
html_css_files = ["coterie.css"]
html_js_files = ["coterie.js"]
html_extra_path = ["root"]
html_copy_source = False
html_show_search_summary = False  # it would load pages, which browsers refuse to do from disk
html_theme_options = {"navigation_with_keys": True}
