"""What documentation and configuration say beside what was seen on the real parts, and where a page keeps it."""

BEGIN, END = "<!-- written by {} -->\n", "<!-- end of what is written -->\n"


class Claims:
    """Rows of where it is said, the claim, what was seen, and whether it holds; None if it was not tried."""

    def __init__(self):
        self.rows = []

    def add(self, where, claim, seen, holds):
        self.rows.append({"where": where, "claim": claim, "seen": str(seen), "holds": bool(holds)})
        print(f"{'ok   ' if holds else 'WRONG'}  {claim}: {seen}", flush=True)

    def skip(self, where, claim, why):
        """A claim that cannot be tried here."""
        self.rows.append({"where": where, "claim": claim, "seen": f"not tried: {why}", "holds": None})
        print(f"SKIPPED  {claim}: {why}", flush=True)

    def wrong(self):
        return [row for row in self.rows if row["holds"] is False]

    def skipped(self):
        return [row for row in self.rows if row["holds"] is None]


def claims_table(rows):
    """The rows as a table of a page."""
    words = {True: "yes", False: "NO", None: "not tried"}
    cells = [(r["where"], r["claim"], r["seen"], words[r["holds"]]) for r in rows]
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
