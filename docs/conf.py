"""The documentation site: `make site` builds it into docs/_build, from the pages beside this file.

Sphinx with MyST and Furo, not mkdocs-material: MkDocs has had no release since 1.6.1 of August 2024, its version 2
drops plugins and themes, and Material, which stays with version 1, has been in maintenance since November 2025. Sphinx
is kept well, imports the packages for the reference, fails on a dead link within the site (`-W`), and its pages open
from a folder, search included. MyST takes the Markdown that also reads well in the repository; Furo has light, dark and
keyboard access. They are installed by the target alone: the package depends on none of them.
"""

import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

import ops  # noqa: E402

project = "taskflow"
html_title = "taskflow"
language = "en"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "README.md"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

# Docstrings are plain text with `code` in single backticks and sections as Google has them.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
napoleon_use_ivar = True
napoleon_use_rtype = False

myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
suppress_warnings = ["myst.header"]  # a page of the reference begins with its second level


def list_families(app: Sphinx, docname: str, source: list[str]) -> None:
    """The names of `ops` that come from a folder stand where a page says ```{family} FOLDER```."""
    imports = (DOCS.parent / "ops" / "__init__.py").read_text(encoding="utf-8")

    def listed(found: re.Match[str]) -> str:
        names = re.findall(
            rf"^ +from ops\.{found[1]}\b.* import \(?\s*(\w+) as", imports, re.MULTILINE
        )
        kinds = ["class" if isinstance(getattr(ops, name), type) else "function" for name in names]
        each = [f".. auto{kind}:: ops.{name}\n" for kind, name in zip(kinds, names, strict=True)]
        return "```{eval-rst}\n" + "\n".join(each) + "```"

    source[0] = re.sub(r"```\{family\} (\w+)\n```", listed, source[0])


def escape_formulas(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Docstrings are plain text: what is not `code` has no markup, and a `*` or `|` in a formula is just that."""
    for k, line in enumerate(lines):
        parts = re.split(r"(`[^`]*`|^\s*\* )", line)
        lines[k] = "".join(
            re.sub(r"([*|])", r"\\\1", part) if j % 2 == 0 else part for j, part in enumerate(parts)
        )


def inline_pictures(app: Sphinx, tree: nodes.document, docname: str) -> None:
    """Put our SVGs into the page itself: then they follow its theme, and their text can be found and read out."""
    for image in list(tree.findall(nodes.image)):
        path = DOCS / image["uri"]
        if path.suffix == ".svg" and path.parent.name == "pictures":
            text = path.read_text(encoding="utf-8")
            text = re.sub(r"^<\?xml[^>]*\?>\s*", "", text)
            image.replace_self(nodes.raw("", f'<div class="picture">{text}</div>', format="html"))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", list_families)
    app.connect("autodoc-process-docstring", escape_formulas, priority=400)
    app.connect("doctree-resolved", inline_pictures)
