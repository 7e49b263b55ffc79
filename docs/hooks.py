"""What mkdocs is told beyond mkdocs.yml: pages that lie outside docs/, and links to them."""

import re
from html import unescape
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

# Where each lies in the repository, and in the site.
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "results/README.md": "results.md",
}


def on_files(files, config):
    """Add the pages that lie outside docs/."""
    root = Path(config.config_file_path).parent
    for path, page in OUTSIDE.items():
        text = (root / path).read_text().replace("](../docs/", "](").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turn links to files of the repository into links to their pages."""
    for path, name in OUTSIDE.items():
        markdown = markdown.replace(f"](../{path}", f"]({name}")
    return markdown


def on_page_content(html, page, config, files):
    """Turn formulas into MathML, which browsers show without a script."""
    html = re.sub(r'<span class="arithmatex">\\\((.*?)\\\)</span>', _inline, html, flags=re.DOTALL)
    return re.sub(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', _block, html, flags=re.DOTALL)


def _inline(found):
    return convert(unescape(found[1]))


def _block(found):
    return convert(unescape(found[1]), display="block")
