//! Polygon's HTTP interface inside the test, as strict as the real one: it checks the key, the parameters and their limits, cuts answers
//! into pages, leaves `results` out where there are none, and fails as the test sets it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// The only key that it accepts.
pub const KEY: &str = "hunter2-polygon-key";
/// Base bars that a page may have at most.
const BASE_BARS_MAX: usize = 50_000;

/// A bar of a minute or of a day; times in milliseconds since 1970 in UTC.
#[derive(Debug, Clone)]
pub struct Bar {
    pub ticker: &'static str,
    pub t: i64,
    /// Open, high, low, close.
    pub prices: [f64; 4],
    pub volume: f64,
}

/// What the server knows.
#[derive(Debug, Clone, Default)]
pub struct Market {
    pub minutes: Vec<Bar>,
    /// Each at midnight in New York.
    pub days: Vec<Bar>,
    /// Results of splits, dividends and tickers, as they are answered.
    pub splits: Vec<Value>,
    pub dividends: Vec<Value>,
    /// A ticker may have `from` and `until`, which are not answered: the days on which it is active; after them it is in no answer, as
    /// that of a company that was renamed.
    pub tickers: Vec<Value>,
    /// Changes of tickers by FIGI, or by the ticker that somebody has now: date and ticker.
    pub changes: BTreeMap<&'static str, Vec<(&'static str, &'static str)>>,
}

/// How it fails.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Every such request is one too many: 429 with `Retry-After: 1`.
    pub too_many_every: u64,
    /// Every such request ends with 500.
    pub broken_every: u64,
    /// The body of every such answer is cut off.
    pub cut_every: u64,
    /// How long each answer takes.
    pub delay: Duration,
    /// Results of a page, at most.
    pub page: usize,
    /// After so many answers none comes any more; 0: never.
    pub silent_after: u64,
    /// Pages never end.
    pub endless: bool,
    /// Bars of all days are answered, whatever was asked for.
    pub ignores_days: bool,
}

#[derive(Debug, Default)]
struct State {
    market: Market,
    faults: Faults,
    requests: u64,
    answered: u64,
    /// Paths with queries, and statuses.
    log: Vec<(String, u16)>,
}

/// The server; its threads live until the test process ends.
#[derive(Debug)]
pub struct Polygon {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    state: Arc<Mutex<State>>,
}

impl Polygon {
    /// Starts it.
    pub fn start(market: Market, faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(Mutex::new(State { market, faults, ..State::default() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || while converse(&stream, &shared).is_some() {});
            }
        });
        Self { url, state }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes how it fails.
    pub fn fail(&self, faults: Faults) {
        let mut state = self.state();
        (state.faults, state.answered) = (faults, 0);
    }

    /// Paths with queries, and statuses, in the order of the answers.
    pub fn log(&self) -> Vec<(String, u16)> {
        self.state().log.clone()
    }

    /// How many requests had this status.
    pub fn count(&self, status: u16) -> usize {
        self.state().log.iter().filter(|(_, other)| *other == status).count()
    }
}

/// Reads a request and answers it; `None` where the connection is to be closed.
fn converse(stream: &TcpStream, shared: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let target = line.split(' ').nth(1)?.to_owned();
    let is_get = line.starts_with("GET ");
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let (status, body, cut, delay) = {
        let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if is_gone(stream) {
            // The last request of a client that was killed is no request of the next one.
            return None;
        }
        state.requests += 1;
        let faults = state.faults.clone();
        if faults.silent_after > 0 && state.answered >= faults.silent_after {
            drop(state);
            // Until the client is killed.
            let _ = reader.read_line(&mut line);
            return None;
        }
        let every = |n: u64| n > 0 && state.requests.is_multiple_of(n);
        let cut = every(faults.cut_every);
        let authorized = headers.get("authorization").is_some_and(|value| *value == format!("Bearer {KEY}"));
        let (status, body) = if every(faults.too_many_every) {
            (429, error("You've exceeded the maximum requests per minute"))
        } else if every(faults.broken_every) {
            (500, json!("Internal Server Error"))
        } else if !authorized {
            (401, error("Unknown API Key"))
        } else if !is_get {
            (405, error("method not allowed"))
        } else {
            answer(&state, &target, headers.get("host").map_or("", String::as_str))
        };
        state.answered += u64::from(status == 200);
        state.log.push((target, status));
        (status, body.to_string(), cut, faults.delay)
    };
    std::thread::sleep(delay);
    let wait = if status == 429 { "Retry-After: 1\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status} X\r\n{wait}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let sent = if cut { &body[..body.len() / 2] } else { &body };
    let mut stream = stream;
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(sent.as_bytes())).ok()?;
    if cut {
        let _ = stream.shutdown(std::net::Shutdown::Both);
        return None;
    }
    Some(())
}

/// Whether the client has ended. It keeps its side of a connection open until it has read the answer.
fn is_gone(stream: &TcpStream) -> bool {
    let look = || {
        stream.set_nonblocking(true)?;
        let seen = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        seen
    };
    match look() {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

fn error(message: &str) -> Value {
    json!({ "status": "ERROR", "request_id": "r", "error": message })
}

/// Status and body.
fn answer(state: &State, target: &str, host: &str) -> (u16, Value) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut parameters: BTreeMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    if parameters.keys().any(|name| name.eq_ignore_ascii_case("apikey")) {
        return (400, error("a key in a query ends up in logs"));
    }
    // The cursor is the index of the first result; the other parameters stay in the address of the next page.
    let skip: usize = parameters.remove("cursor").map_or(0, |text| text.parse().expect("a cursor of this server"));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let allowed = |names: &[&str]| parameters.keys().find(|name| !names.contains(name)).copied();
    let limit = |default: usize, most: usize| -> Result<usize, (u16, Value)> {
        let asked = parameters.get("limit").map_or(Ok(default), |text| text.parse());
        asked.ok().filter(|limit| (1..=most).contains(limit)).ok_or_else(|| (400, error("limit is out of bounds")))
    };
    let unknown = |name: &str| (400, error(&format!("unknown parameter {name}")));
    let found: Result<(Vec<Value>, usize, Value), (u16, Value)> = match parts.as_slice() {
        ["v2", "aggs", "ticker", ticker, "range", multiplier, span, from, to] => {
            if let Some(name) = allowed(&["adjusted", "sort", "limit"]) {
                return unknown(name);
            }
            let Ok(multiplier) = multiplier.parse::<i64>() else { return (400, error("multiplier")) };
            let ticker = ticker.replace("%2F", "/");
            let (base, length) = match *span {
                "minute" => (&state.market.minutes, 60_000 * multiplier),
                "hour" => (&state.market.minutes, 3_600_000 * multiplier),
                "day" if multiplier == 1 => (&state.market.days, 86_400_000),
                _ => return (400, error("timespan")),
            };
            let is_own = |bar: &&Bar| {
                let is_asked = state.faults.ignores_days || (*from..=*to).contains(&date(bar.t).as_str());
                bar.ticker == ticker && is_asked
            };
            let mut own: Vec<&Bar> = base.iter().filter(is_own).collect();
            own.sort_by_key(|bar| bar.t);
            let bars = higher(own.into_iter(), if *span == "day" { 1 } else { length });
            let per = if *span == "day" { 1 } else { (length / 60_000) as usize };
            let adjusted = parameters.get("adjusted") != Some(&"false");
            let extra = json!({ "ticker": ticker, "adjusted": adjusted, "queryCount": bars.len() });
            // The limit counts base bars.
            limit(5_000, BASE_BARS_MAX).map(|limit| (bars, (limit / per).max(1), extra))
        }
        ["v2", "aggs", "grouped", "locale", "us", "market", "stocks", day] => {
            if let Some(name) = allowed(&["adjusted", "include_otc"]) {
                return unknown(name);
            }
            let of_day = state.market.days.iter().filter(|bar| state.faults.ignores_days || date(bar.t) == *day);
            let results = of_day.map(|bar| {
                let mut value = result(bar);
                value["T"] = json!(bar.ticker);
                // Its time is that of the close.
                value["t"] = json!(bar.t + 16 * 3_600_000);
                value
            });
            Ok((results.collect(), usize::MAX, json!({ "adjusted": parameters.get("adjusted") != Some(&"false") })))
        }
        ["stocks", "v1", kind @ ("splits" | "dividends")] => {
            let (all, column) = match *kind {
                "splits" => (&state.market.splits, "execution_date"),
                _ => (&state.market.dividends, "ex_dividend_date"),
            };
            let (gte, lte) = (format!("{column}.gte"), format!("{column}.lte"));
            if let Some(name) = allowed(&["limit", "sort", "ticker.any_of", &gte, &lte]) {
                return unknown(name);
            }
            let tickers = parameters.get("ticker.any_of").map(|text| text.split(',').collect::<Vec<_>>());
            let day = |value: &Value| value[column].as_str().unwrap_or_default().to_owned();
            let wanted = |value: &&Value| {
                parameters.get(gte.as_str()).is_none_or(|from| day(value).as_str() >= *from)
                    && parameters.get(lte.as_str()).is_none_or(|to| day(value).as_str() <= *to)
                    && tickers.as_ref().is_none_or(|tickers| tickers.contains(&value["ticker"].as_str().unwrap_or("")))
            };
            let mut results: Vec<Value> = all.iter().filter(wanted).cloned().collect();
            results.sort_by_key(day);
            limit(100, 5_000).map(|limit| (results, limit, json!({})))
        }
        ["v3", "reference", "tickers"] => {
            if let Some(name) = allowed(&["market", "date", "active", "limit", "sort", "order"]) {
                return unknown(name);
            }
            let active = parameters.get("active") != Some(&"false");
            let as_of = parameters.get("date").copied().unwrap_or("9999-12-31");
            // Of some that are gone it has no date.
            let gone = |value: &Value| match value["delisted_utc"].as_str() {
                Some(delisted) => delisted.get(..10).unwrap_or("") <= as_of,
                None => value["active"] == json!(false),
            };
            let is_here = |value: &&Value| {
                value["from"].as_str().is_none_or(|from| from <= as_of)
                    && value["until"].as_str().is_none_or(|until| as_of < until)
            };
            let found = state.market.tickers.iter().filter(is_here).filter(|value| gone(value) != active);
            let results = found.cloned().map(|mut value| {
                value["active"] = json!(active);
                if let Some(fields) = value.as_object_mut() {
                    fields.retain(|name, _| name != "from" && name != "until");
                }
                value
            });
            limit(100, 1_000).map(|limit| (results.collect(), limit, json!({})))
        }
        ["vX", "reference", "tickers", id, "events"] => {
            if let Some(name) = allowed(&["types"]) {
                return unknown(name);
            }
            let Some(changes) = state.market.changes.get(id) else {
                return (404, json!({ "status": "NOT_FOUND", "request_id": "r", "message": "Ticker not found" }));
            };
            // The newest comes first.
            let event = |(date, ticker): &(&str, &str)| json!({ "date": date, "type": "ticker_change", "ticker_change": { "ticker": ticker } });
            let events: Vec<Value> = changes.iter().rev().map(event).collect();
            return (200, json!({ "status": "OK", "request_id": "r", "results": { "name": "X", "events": events } }));
        }
        _ => return (404, error("page not found")),
    };
    let (results, limit, extra) = match found {
        Ok(found) => found,
        Err(refused) => return refused,
    };
    // The market of a day has one page.
    let page = match state.faults.page {
        0 => limit,
        _ if limit == usize::MAX => limit,
        page => limit.min(page),
    };
    let shown: Vec<Value> = results.iter().skip(skip).take(page).cloned().collect();
    let mut body = json!({ "status": "OK", "request_id": "r", "resultsCount": shown.len() });
    for (name, value) in extra.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    let next = skip + shown.len();
    if !shown.is_empty() {
        body["results"] = json!(shown);
    }
    if next < results.len() || state.faults.endless {
        let rest: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let next = if state.faults.endless { 0 } else { next };
        body["next_url"] = json!(format!("https://{host}{path}?{}&cursor={next}", rest.join("&")));
    }
    (200, body)
}

/// Bars of so many milliseconds.
fn higher<'a>(bars: impl Iterator<Item = &'a Bar>, length: i64) -> Vec<Value> {
    let mut made: Vec<Bar> = Vec::new();
    for bar in bars {
        let start = if length == 1 { bar.t } else { bar.t - bar.t.rem_euclid(length) };
        match made.last_mut().filter(|last| last.t == start) {
            None => made.push(Bar { t: start, ..bar.clone() }),
            Some(last) => {
                last.prices[1] = last.prices[1].max(bar.prices[1]);
                last.prices[2] = last.prices[2].min(bar.prices[2]);
                last.prices[3] = bar.prices[3];
                last.volume += bar.volume;
            }
        }
    }
    made.iter().map(result).collect()
}

fn result(bar: &Bar) -> Value {
    let [o, h, l, c] = bar.prices;
    json!({ "o": o, "h": h, "l": l, "c": c, "v": bar.volume, "vw": (h + l) / 2.0, "n": 3, "t": bar.t })
}

/// The date in New York in winter, five hours behind.
fn date(t: i64) -> String {
    let days = (t - 5 * 3_600_000).div_euclid(86_400_000);
    // Days since 1970 as a civil date (Howard Hinnant's algorithm).
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
