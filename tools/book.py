#!/usr/bin/env python3
"""The book made of docs/ and of the pages beside it (README.md, ARCHITECTURE.md, ...).

    book.py            checks every relative link and anchor of these pages, that mkdocs.yml lists each page once, that the
                       modules in the tables of ARCHITECTURE.md exist, and that docs/versions.md has the constants of the
                       sources

MkDocs loads this file as its hook (mkdocs.yml): it adds the pages outside docs/, rewrites links between pages to their
places in the book, and gives headings the anchors that GitHub gives them. Links to files that are not pages (rules,
examples, sources) become plain text there, because the book has to stand without the repository.

Deliberately not checked: links to other hosts. The check needs PyYAML and no network.
"""

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Pages outside docs/, and their places in the book. docs/security.md has the name 'security' already, and file systems
# exist that ignore case.
BESIDE = {
    "README.md": "README.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "reporting.md",
    "benches/results/README.md": "benches.md",
    "coordinator/README.md": "coordinator.md",
    "deploy/README.md": "deploy.md",
    "helm/trawl/README.md": "chart.md",
}

FENCE = re.compile(r"^ {0,8}(```+|~~~+)")
CODE_SPAN = re.compile(r"(`+)(?:(?!\1).)+?\1")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(<?([^()\s>]+)>?\)")
LIST_ITEM = re.compile(r"^ {0,3}(?:[-*+]|\d+\.) ")


def pages():
    """{place in the repository: place in the book} of every page, both with '/'."""
    inside = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return {path: path.removeprefix("docs/") for path in inside} | BESIDE


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def outside_code(text):
    """(line number from 1, line) of what is not in a fenced block, with code spans blanked."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        if mark := FENCE.match(line):
            if fence is None:
                fence = mark[1]
                continue
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = None
                continue
        if fence is None:
            yield number, CODE_SPAN.sub(lambda span: " " * len(span[0]), line)


def anchors(text):
    """Every anchor of a page. Equal headings are numbered, as GitHub does."""
    found = {}
    for number, line in outside_code(text):
        if re.match(r"#{1,6} ", line):
            heading = text.splitlines()[number - 1].lstrip("#")
            name = slug(heading)
            count = found.get(name, 0)
            found[name] = count + 1
            if count:
                found[f"{name}-{count}"] = 1
    return set(found)


def is_elsewhere(target):
    """Whether a link leads out of the repository."""
    return re.match(r"[a-z][a-z0-9+.-]*:", target) is not None


def resolved(page, target):
    """(place in the repository, anchor or '') of a relative link of a page."""
    path, _, anchor = target.partition("#")
    place = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    return place.replace(os.sep, "/"), anchor


# The check


def broken_links(page, text, texts):
    """What is wrong with the links of one page, one sentence each."""
    wrong = []
    for number, line in outside_code(text):
        for _, _, target in LINK.findall(line):
            if is_elsewhere(target):
                continue
            place, anchor = resolved(page, target)
            if place.startswith("..") or not (ROOT / place).exists():
                wrong.append(f"{page}:{number}: '{target}' leads to nothing")
            elif anchor and place in texts and anchor not in anchors(texts[place]):
                wrong.append(f"{page}:{number}: '{place}' has no heading for '#{anchor}'")
            elif anchor and place not in texts and place.endswith(".md"):
                wrong.append(f"{page}:{number}: '{place}' is not a page of the book, so its anchors are not checked")
    return wrong


def glued_lists(page, text):
    """Lists right behind a line of text: GitHub shows a list, the book would show one paragraph."""
    wrong, before = [], ""
    for number, line in outside_code(text):
        starts = LIST_ITEM.match(line) and before.strip() and not before.startswith(("#", " ", "|", ">"))
        if starts and not LIST_ITEM.match(before):
            wrong.append((number, f"{page}:{number}: an empty line is missing before the list"))
        # A line that continues an item is no text before a list.
        before = "- " if LIST_ITEM.match(before) and line.strip() and not LIST_ITEM.match(line) else line
    return [sentence for _, sentence in wrong]


def missing_modules(text):
    """Modules that a crate's table in ARCHITECTURE.md names and its sources do not have."""
    wrong, crate, named = [], None, 0
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.match(r"###? (?:`(\w+)/`)?", line):
            crate = heading[1]
        elif crate and (row := re.match(r"\| (`[^|]*`) \|", line)):
            for module in re.findall(r"`([\w/-]+)`", row[1]):
                named += 1
                source = ROOT / crate / "src" / module
                is_crate = (ROOT / module / "Cargo.toml").is_file()
                if not is_crate and not source.is_dir() and not source.with_suffix(".rs").is_file():
                    wrong.append(f"ARCHITECTURE.md:{number}: '{crate}' has no module '{module}'")
    return wrong or ([] if named > 60 else ["ARCHITECTURE.md: the tables of modules were not understood"])


def wrong_versions(text):
    """Rows of docs/versions.md whose version is not that of the constant they name."""
    wrong, rows = [], re.findall(r"^\| [^|]+ \| `?([^|`]+)`? \| `([\w:]+)` in `([\w/.]+)` \|", text, re.M)
    release = re.search(r'^\[workspace\.package\]\nversion = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    for version, name, place in rows:
        source = (ROOT / place).read_text() if (ROOT / place).is_file() else ""
        constant = re.search(rf"const {name}: [^=]+ = (.*);", source)
        if name == "Plan::canonical":
            right = f'"{version.strip()}\\n"' in source
        elif constant and "CARGO_PKG_VERSION" in constant[1]:
            right = version == f"trawl/{release}"
        else:
            right = constant is not None and constant[1].lstrip("*b").strip('"') == version.strip()
        if not right:
            found = constant[1] if constant else "not there"
            wrong.append(f"docs/versions.md: {name} of {place} is not {version.strip()}: {found}")
    return wrong if len(rows) == 13 else [*wrong, f"docs/versions.md: {len(rows)} rows were understood, not 13"]


def listed(nav):
    """Every page that a nav names, in order."""
    for entry in nav:
        target = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from listed(target) if isinstance(target, list) else [target]


def check():
    """Every mistake, one sentence each, and how many links were looked at."""
    import yaml

    texts = {place: (ROOT / place).read_text() for place in pages()}
    wrong, links = [], 0
    for place, text in texts.items():
        wrong += broken_links(place, text, texts) + glued_lists(place, text)
        links += sum(len(LINK.findall(line)) for _, line in outside_code(text))
    wrong += missing_modules(texts["ARCHITECTURE.md"])
    wrong += wrong_versions(texts["docs/versions.md"])
    named = list(listed(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    there = set(pages().values())
    wrong += [f"mkdocs.yml: the nav lacks '{page}'" for page in sorted(there - set(named))]
    wrong += [f"mkdocs.yml: the nav names '{page}', which is not there" for page in named if page not in there]
    wrong += [f"mkdocs.yml: the nav names '{page}' twice" for page in sorted({p for p in named if named.count(p) > 1})]
    return wrong, len(texts), links


# MkDocs' hooks


def on_config(config):
    """Anchors as GitHub makes them."""
    config["mdx_configs"].setdefault("toc", {})["slugify"] = lambda text, separator: slug(text)
    return config


def on_files(files, config):
    """Adds the pages beside docs/."""
    from mkdocs.structure.files import File

    for place, book in BESIDE.items():
        files.append(File.generated(config, book, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Rewrites links to the places in the book, and fences to one word."""
    places = pages()
    here = next(place for place, book in places.items() if book == page.file.src_uri)

    def link(found):
        image, text, target = found.groups()
        if is_elsewhere(target):
            return found[0]
        place, anchor = resolved(here, target)
        if place not in places and f"{place}/README.md" in places:
            place = f"{place}/README.md"
        if place not in places:
            return found[0] if image else text
        path = os.path.relpath(places[place], os.path.dirname(places[here]) or ".").replace(os.sep, "/")
        return f"{image}[{text}]({path}{'#' + anchor if anchor else ''})"

    def rewritten(line):
        """One line outside of fences, code spans left alone."""
        spans = [span.span() for span in CODE_SPAN.finditer(line)]
        inside = lambda at: any(first < at < last for first, last in spans)  # noqa: E731
        return LINK.sub(lambda found: found[0] if inside(found.start()) else link(found), line)

    lines = markdown.splitlines()
    for number, _ in outside_code(markdown):
        lines[number - 1] = rewritten(lines[number - 1])
    # Python-Markdown knows a fence's first word only.
    return "\n".join(re.sub(r"^(\s*```+\w+) .*$", r"\1", line) for line in lines)


if __name__ == "__main__":
    mistakes, page_count, link_count = check()
    print("\n".join(mistakes))
    print(f"{page_count} pages, {link_count} links, {len(mistakes)} mistakes")
    sys.exit(1 if mistakes else 0)
