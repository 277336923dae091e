"""MkDocs hook: the site asks no other machine for anything, and screen readers hear what its search is.

The search from a disk needs a small script: it is in `assets`.
"""

CHANGES = {
    "https://unpkg.com/iframe-worker/shim": "assets/iframe-worker.js",
    'data-md-component="search" role="dialog"': 'data-md-component="search" role="dialog" aria-label="Search"',
}


def on_post_page(output: str, page, config) -> str:
    for old, new in CHANGES.items():
        output = output.replace(old, new)
    return output


def on_post_template(output: str, template_name: str, config) -> str:
    return on_post_page(output, None, config)
