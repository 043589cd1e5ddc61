"""What documentation and configuration say beside what was seen on the real parts, and where a page keeps it."""

BEGIN, END = "<!-- written by {} -->\n", "<!-- end of what is written -->\n"


class Claims:
    """Rows of where it is said, the claim, what was seen, and whether it holds."""

    def __init__(self):
        self.rows = []

    def add(self, where, claim, seen, holds):
        self.rows.append({"where": where, "claim": claim, "seen": str(seen), "holds": bool(holds)})
        print(f"{'ok   ' if holds else 'WRONG'}  {claim}: {seen}", flush=True)

    def wrong(self):
        return [row for row in self.rows if not row["holds"]]


def claims_table(rows):
    """The rows as a table of a page."""
    cells = [(r["where"], r["claim"], r["seen"], "yes" if r["holds"] else "NO") for r in rows]
    return table(("Where", "Claim", "Seen", "Holds"), cells)


def table(head, rows):
    """A table of a page."""
    cell = lambda text: str(text).replace("|", "\\|")
    lines = ["| " + " | ".join(map(cell, row)) + " |" for row in [head, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]]) + "\n"


def show(page, command, text):
    """Puts a text between the marks of `command` on a page, in place of what was there."""
    begin = BEGIN.format(command)
    before, rest = page.read_text().split(begin)
    page.write_text(before + begin + "\n" + text + "\n" + END + rest.split(END, 1)[1])


def shown(page, command):
    """What `show` put there."""
    return page.read_text().split(BEGIN.format(command))[1].split(END, 1)[0]
