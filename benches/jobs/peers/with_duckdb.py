"""DuckDB: lists of each symbol's bars and windows over them, from Parquet (`..._db`: from its own file)."""

import duckdb
from common import BELOW, DAYS, FAST, RSI, SHARE, SLOW, TAIL, WEIGHTS, WITHIN, main


def run(folder, query, kind="parquet"):
    if kind == "db":
        connection = duckdb.connect(f"{folder}/bars.duckdb", read_only=True)
    else:
        connection = duckdb.connect()
        connection.execute(f"CREATE VIEW bars AS SELECT * FROM read_parquet('{folder}/bars.parquet')")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(query)


def csv(query, answer):
    return f"COPY ({query}) TO '{answer}' (FORMAT csv, HEADER)"


def mean(n, back=0):
    """The mean of n values of the list c that ends `back` values before its last; NULL where there are fewer."""
    return f"CASE WHEN len(c) >= {n + back} THEN list_avg(c[len(c) - {n + back - 1}:len(c) - {back}]) END"


def wilder(changes):
    """The last of Wilder's means of a list of changes."""
    step = f"lambda a, x: (a * {RSI - 1} + x) / {RSI}"
    return f"list_reduce(list_concat([list_avg(({changes})[1:{RSI}])], ({changes})[{RSI + 1}:]), {step})"


def rsi(lists):
    """Wilder's index at the last bar of `lists`, a query with a list c; adds the column rsi."""
    return f"""
        SELECT *, CASE WHEN len(c) <= {RSI} THEN NULL WHEN up + down = 0 THEN 0 ELSE 100 * up / (up + down) END AS rsi FROM (
            SELECT *, {wilder('list_transform(d, lambda x: greatest(x, 0))')} AS up,
                {wilder('list_transform(d, lambda x: greatest(-x, 0))')} AS down
            FROM (SELECT *, list_transform(range(2, len(c) + 1), lambda i: c[i] - c[i - 1]) AS d FROM ({lists})))"""


def tails():
    """One row for each symbol with a bar at the market's last time, c the last closes."""
    return f"""
        SELECT symbol, time, all_c[-{TAIL}:] AS c FROM (
            SELECT symbol, max(time) AS time, list(close ORDER BY time) AS all_c FROM bars GROUP BY symbol)
        WHERE time = (SELECT max(time) FROM bars)"""


def newest(folder, answer, kind="parquet"):
    crosses = " OR ".join(
        f"(({mean(FAST, k)}) > ({mean(SLOW, k)}) AND ({mean(FAST, k + 1)}) <= ({mean(SLOW, k + 1)}))" for k in range(WITHIN)
    )
    query = f"SELECT symbol, rsi AS value FROM ({rsi(f'SELECT * FROM ({tails()}) WHERE {crosses}')}) WHERE rsi < {BELOW}"
    run(folder, csv(query, answer), kind)


def rank(folder, answer, kind="parquet"):
    score = " + ".join(f"{weight} * 100 * (c[-1] / c[len(c) - {n}] - 1)" for n, weight in WEIGHTS.items())
    longest = max(WEIGHTS)
    query = f"""
        WITH scores AS (SELECT symbol, {score} AS score FROM ({tails()}) WHERE len(c) > {longest}),
        ranks AS (SELECT symbol, (rank() OVER (ORDER BY score) + (count(*) OVER (PARTITION BY score) - 1) / 2 - 0.5)
            / count(*) OVER () AS value FROM scores)
        SELECT symbol, value FROM ranks WHERE value >= {SHARE}"""
    run(folder, csv(query, answer), kind)


def every_bar(folder, answer):
    """Wilder's means as running sums: the changes weighted with powers of n/(n - 1), and the sum divided by the bar's power."""
    n, ratio = RSI, RSI / (RSI - 1)
    seed = f"sum(x) OVER (o ROWS {n - 1} PRECEDING) / {n} * pow({ratio!r}, {n})"

    def running(change):
        term = f"CASE WHEN i < {n} THEN 0 WHEN i = {n} THEN {seed.replace('x', change)} ELSE {change} / {n} * pow({ratio!r}, i) END"
        return term

    query = f"""
        WITH numbered AS (
            SELECT symbol, time, close, row_number() OVER o - 1 AS i, close - lag(close) OVER o AS d,
                CASE WHEN count(*) OVER (o ROWS {FAST - 1} PRECEDING) = {FAST} THEN avg(close) OVER (o ROWS {FAST - 1} PRECEDING) END AS f,
                CASE WHEN count(*) OVER (o ROWS {SLOW - 1} PRECEDING) = {SLOW} THEN avg(close) OVER (o ROWS {SLOW - 1} PRECEDING) END AS s
            FROM bars WINDOW o AS (PARTITION BY symbol ORDER BY time)),
        terms AS (
            SELECT symbol, time, close, i, f > s AND lag(f) OVER o <= lag(s) OVER o AS crossed,
                greatest(d, 0) AS gain, greatest(-d, 0) AS loss
            FROM numbered WINDOW o AS (PARTITION BY symbol ORDER BY time)),
        weighted AS (
            SELECT *, {running('gain')} AS g, {running('loss')} AS l FROM terms WINDOW o AS (PARTITION BY symbol ORDER BY time)),
        sums AS (
            SELECT symbol, time, close, i, sum(g) OVER o AS up, sum(l) OVER o AS down,
                bool_or(crossed) OVER (o ROWS {WITHIN - 1} PRECEDING) AS recent
            FROM weighted WINDOW o AS (PARTITION BY symbol ORDER BY time))
        SELECT symbol, time, close,
            recent AND i >= {n} AND CASE WHEN up + down = 0 THEN 0 ELSE 100 * up / (up + down) END < {BELOW} AS signal FROM sums"""
    run(folder, f"COPY ({query}) TO '{answer}' (FORMAT parquet)")


def minutes(folder, answer, kind="parquet"):
    query = f"SELECT symbol, rsi AS value FROM ({rsi(tails())}) WHERE c[-1] > ({mean(SLOW)}) AND rsi < {BELOW}"
    run(folder, csv(query, answer), kind)


def minutes_to_days(folder, answer, kind="parquet"):
    """Days before the market's last one are complete, and that one if some symbol has all of its 390 minutes."""
    query = f"""
        WITH daily AS (
            SELECT symbol, time::DATE AS day, max(time) AS time, arg_max(close, time) AS close, count(*) AS minutes
            FROM bars GROUP BY symbol, day),
        open_day AS (SELECT day FROM daily GROUP BY day HAVING day = (SELECT max(day) FROM daily) AND max(minutes) < 390),
        lists AS (
            SELECT symbol, max(time) AS time, arg_max(close, day) AS newest,
                list(close ORDER BY day) FILTER (day NOT IN (SELECT day FROM open_day)) AS c
            FROM daily GROUP BY symbol)
        SELECT symbol, rsi AS value FROM ({rsi('SELECT * FROM lists WHERE time = (SELECT max(time) FROM bars)')})
        WHERE ({mean(DAYS)}) < newest AND rsi < {BELOW}"""
    run(folder, csv(query, answer), kind)


def load(file, answer, order=""):
    connection = duckdb.connect()
    connection.execute(f"COPY (SELECT * FROM read_csv('{file}') {order}) TO '{answer}' (FORMAT parquet)")


if __name__ == "__main__":
    main({
        "newest": newest,
        "newest_db": lambda folder, answer: newest(folder, answer, "db"),
        "rank": rank,
        "rank_db": lambda folder, answer: rank(folder, answer, "db"),
        "every_bar": every_bar,
        "minutes": minutes,
        "minutes_db": lambda folder, answer: minutes(folder, answer, "db"),
        "minutes_to_days": minutes_to_days,
        "minutes_to_days_db": lambda folder, answer: minutes_to_days(folder, answer, "db"),
        "import": load,
        "import_sorted": lambda file, answer: load(file, answer, "ORDER BY symbol, time"),
    })
