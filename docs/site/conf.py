"""How the pages become a site. `./scripts/docs` builds it; nothing in it needs the network.

The sources are the repository itself, so that README.md and CONTRIBUTING.md are pages like the others, and every link
between files is the same on a code host and on the site.
"""

from importlib.metadata import version as version_of

project = "Coterie"
author = "the Coterie contributors"
copyright = author
version = release = version_of("coterie")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "docs/**.md"]
exclude_patterns = [".*", "build", "dist", "runs", "src", "tests", "benchmarks", "examples", "scripts"]

myst_heading_anchors = 4  # the anchors that a code host makes, for links such as data.md#views
suppress_warnings = ["myst.header"]  # parts of the reference begin at the level that their place needs

nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures: most are not part of the reference
default_role = "code"  # docstrings write `names` as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "separated"  # what makes a peer is the engine's business, and fills a screen
smartquotes_action = "q"  # no dashes of it: `--out` is an option

html_theme = "furo"
html_title = "Coterie"
html_static_path = ["static"]
html_css_files = ["coterie.css"]
html_js_files = ["coterie.js"]
html_extra_path = ["root"]
html_copy_source = False
html_show_search_summary = False  # it would load pages, which a browser refuses to do from disk
html_theme_options = {"navigation_with_keys": True}
