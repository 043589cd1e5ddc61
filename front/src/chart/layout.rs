//! The layout of a picture: which series are drawn over the price, which in panels of their own, and the range of each.

/// Pixels that a candle needs to be distinguishable from the next one.
pub const CANDLE_PIXELS_MIN: f64 = 2.5;
/// Share of the price's movement that a series over it must have, where that is known.
const OVERLAY_RISES: std::ops::Range<f64> = 0.5..2.0;
/// Share of the price's range by which a series over it may exceed it.
const OVERLAY_REACH: f64 = 0.75;
/// Share of the price's range within which the distance to the close of a series over it has to stay, where it is not known how the series
/// moves: an oscillator that has the price's size by chance does not follow it.
const OVERLAY_DISTANCE: f64 = 0.9;
/// Share of a panel left free above and below.
const MARGIN: f64 = 0.05;

/// Columns of prices; empty where the dataset has none.
#[derive(Debug, Default)]
pub(crate) struct Price {
    pub(crate) open: Vec<f64>,
    pub(crate) high: Vec<f64>,
    pub(crate) low: Vec<f64>,
    pub(crate) close: Vec<f64>,
}

impl Price {
    pub(crate) fn set(&mut self, name: &str, values: Vec<f64>) {
        match name {
            "open" => self.open = values,
            "high" => self.high = values,
            "low" => self.low = values,
            _ => self.close = values,
        }
    }

    fn columns(&self) -> [&[f64]; 4] {
        [&self.open, &self.high, &self.low, &self.close]
    }
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Line,
    /// Bars from zero, as of a histogram.
    Bars,
    /// The same in the colours of the candles.
    Volume,
}

/// Where a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Over the price if it lies and moves as prices do, else in a panel.
    ByValues,
    /// In a panel.
    Panel,
    /// Over the price.
    Overlay,
}

/// Series that share a panel.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) place: Place,
    pub(crate) series: Vec<Series>,
}

/// Values that users of an oscillator look at.
const LEVELS: [(&str, &[f64]); 15] = [
    ("adx", &[25.0]),
    ("aroonosc", &[-50.0, 50.0]),
    ("aroon", &[30.0, 70.0]),
    ("cci", &[-100.0, 100.0]),
    ("cmo", &[-50.0, 50.0]),
    ("crsi", &[10.0, 90.0]),
    ("mfi", &[20.0, 80.0]),
    ("rsi", &[30.0, 70.0]),
    ("stoch", &[20.0, 80.0]),
    ("stochf", &[20.0, 80.0]),
    ("stochrsi", &[20.0, 80.0]),
    ("ultosc", &[30.0, 70.0]),
    ("willr", &[-80.0, -20.0]),
    ("xs_pct", &[0.2, 0.8]),
    ("zscore", &[-2.0, 2.0]),
];

/// One expression along the bars; NaN for NA.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    /// Values that are marked in its panel.
    pub(crate) levels: Vec<f64>,
    pub(crate) is_condition: bool,
    /// By how much the series rises when the price rises by one, where that is known.
    pub(crate) rise: Option<f64>,
    pub(crate) values: Vec<f64>,
}

/// Lines with a common range of values.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) lines: Vec<Series>,
    /// Values that are marked.
    pub(crate) levels: Vec<f64>,
    /// Its height, as a share of a usual panel's.
    pub(crate) share: f64,
    /// Lowest and highest value that are shown.
    pub(crate) span: (f64, f64),
}

/// Ranges of bars, both ends inclusive, on which a condition is true.
pub(crate) type Stretch = (usize, usize);

/// A picture.
#[derive(Debug)]
pub struct ChartLayout {
    /// The symbol, as the dataset calls it.
    pub symbol: String,
    pub(crate) title: String,
    /// From when to when, in words.
    pub(crate) span: String,
    /// Time of each bar on the exchange's clock, in microseconds.
    pub times: Vec<i64>,
    pub(crate) price: Price,
    pub(crate) candles: bool,
    /// The price panel; its lines are drawn over the price.
    pub(crate) top: Panel,
    pub(crate) below: Vec<Panel>,
    /// Name and ranges of each condition.
    pub(crate) shades: Vec<(String, Vec<Stretch>)>,
    /// Name of a scan, and the bars at which it matches.
    pub(crate) marks: Option<(String, Vec<usize>)>,
}

impl ChartLayout {
    /// Each of `groups` shares a panel; lines without any value are left out. The plot is `width` pixels wide. `times` are those of
    /// the exchange's clock.
    pub(crate) fn new(title: String, times: Vec<i64>, price: Price, groups: Vec<Group>, width: u32) -> Self {
        let prices = extent(price.columns().into_iter().flatten());
        let candles = times.len() <= candles_max(width) && price.columns().iter().all(|c| !c.is_empty());
        let (mut over, mut below, mut shades) = (Vec::new(), Vec::new(), Vec::new());
        for Group { place, series } in groups {
            let (conditions, lines): (Vec<Series>, Vec<Series>) = series.into_iter().partition(|s| s.is_condition);
            shades.extend(conditions.into_iter().map(|s| (s.name, stretches(&s.values))));
            let span = extent(lines.iter().flat_map(|s| &s.values));
            let Some(extent) = span else { continue };
            let lies_over = || {
                prices.is_some_and(|prices| {
                    lines.iter().all(|line| line.may_lie_over(&price.close, prices)) && is_near(prices, extent)
                })
            };
            match place {
                Place::Overlay => over.extend(lines),
                Place::ByValues if lies_over() => over.extend(lines),
                Place::ByValues | Place::Panel => below.push(Panel::of(lines)),
            }
        }
        let all = price.columns().into_iter().flatten().chain(over.iter().flat_map(|s| &s.values));
        let span = padded(extent(all));
        let top = Panel { lines: over, levels: Vec::new(), share: 3.0, span };
        let symbol = String::new();
        Self { symbol, title, span: String::new(), times, price, candles, top, below, shades, marks: None }
    }
}

/// The function and the field of an expression that is one call: `macd` and `hist` of `macd(close).hist`.
fn call(text: &str) -> Option<(&str, &str)> {
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let open = text.find('(')?;
    let mut depth = 0usize;
    let close = text.char_indices().skip_while(|(at, _)| *at < open).find(|(_, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    });
    let (function, rest) = (&text[..open], &text[close?.0 + 1..]);
    let field = rest.strip_prefix('.').unwrap_or(rest);
    (is_word(function) && is_word(field)).then_some((function, field))
}

/// Whether candles would be distinguishable.
pub fn candles_max(width: u32) -> usize {
    (f64::from(width) / CANDLE_PIXELS_MIN) as usize
}

impl Panel {
    fn of(lines: Vec<Series>) -> Self {
        let levels: Vec<f64> = lines.iter().flat_map(|line| &line.levels).copied().collect();
        let is_volume = lines.iter().all(|line| line.shape == Shape::Volume);
        let has_bars = lines.iter().any(|line| line.shape != Shape::Line);
        let zero = has_bars.then_some(&0.0);
        let span = padded(extent(lines.iter().flat_map(|line| &line.values).chain(&levels).chain(zero)));
        // Bars stand on the edge of their panel.
        let span = if is_volume { (0.0, span.1) } else { span };
        Self { lines, levels, share: if is_volume { 0.6 } else { 1.0 }, span }
    }
}

impl Series {
    /// A series of an expression; what it calls decides how it is drawn.
    pub(crate) fn new(name: String, text: &str, is_condition: bool, rise: Option<f64>, values: Vec<f64>) -> Self {
        let text = text.trim();
        let (called, field) = call(text).unwrap_or_default();
        let levels = LEVELS.iter().find(|(function, _)| *function == called).map_or(&[][..], |(_, levels)| levels);
        let shape = if text == "volume" {
            Shape::Volume
        } else if field.ends_with("hist") {
            Shape::Bars
        } else {
            Shape::Line
        };
        Self { name, shape, levels: levels.to_vec(), is_condition, rise, values }
    }

    /// Whether the series has no value at all.
    pub(crate) fn is_empty(&self) -> bool {
        !self.values.iter().any(|v| v.is_finite())
    }

    /// A series that does not move with the price is not a price, whatever its size.
    fn may_lie_over(&self, close: &[f64], prices: (f64, f64)) -> bool {
        match self.rise {
            Some(rise) => OVERLAY_RISES.contains(&rise),
            None => {
                let distances: Vec<f64> = self.values.iter().zip(close).map(|(value, close)| value - close).collect();
                extent(distances.iter())
                    .is_none_or(|(least, most)| most - least <= (prices.1 - prices.0) * OVERLAY_DISTANCE)
            }
        }
    }
}

/// The least and the largest finite value.
fn extent<'a>(values: impl Iterator<Item = &'a f64>) -> Option<(f64, f64)> {
    let finite = values.copied().filter(|v| v.is_finite());
    finite.fold(None, |span, v| Some(span.map_or((v, v), |(least, most): (f64, f64)| (least.min(v), most.max(v)))))
}

/// Whether a series lies near the price.
fn is_near(price: (f64, f64), span: (f64, f64)) -> bool {
    let reach = (price.1 - price.0).max(price.1.abs() * 0.01) * OVERLAY_REACH;
    span.0 >= price.0 - reach && span.1 <= price.1 + reach
}

/// The range with some margin, never empty.
fn padded(span: Option<(f64, f64)>) -> (f64, f64) {
    let (least, most) = span.unwrap_or((0.0, 1.0));
    let room = (most - least) * MARGIN;
    // A flat line is drawn in the middle.
    let room = if room > 0.0 && room.is_finite() { room } else { least.abs().max(1.0) * MARGIN };
    (least - room, most + room)
}

fn stretches(values: &[f64]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for (bar, _) in values.iter().enumerate().filter(|(_, v)| **v == 1.0) {
        match stretches.last_mut() {
            Some(last) if last.1 + 1 == bar => last.1 = bar,
            _ => stretches.push((bar, bar)),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, values: &[f64]) -> Series {
        Series::new(name.to_owned(), name, false, None, values.to_vec())
    }

    fn names(panel: &Panel) -> Vec<&str> {
        panel.lines.iter().map(|s| s.name.as_str()).collect()
    }

    #[test]
    fn series_of_the_prices_size_are_drawn_over_it_and_the_rest_below() {
        let price = Price { close: vec![100.0, 110.0, 105.0], ..Price::default() };
        let flag = Series { is_condition: true, ..series("up", &[f64::NAN, 1.0, 1.0]) };
        let groups = [
            vec![series("sma", &[f64::NAN, 104.0, 106.0])],
            vec![series("macd", &[0.1, 0.2, 0.3]), series("signal", &[0.2, 0.1, 0.0])],
            vec![series("far", &[103.0, 400.0, 104.0])],
            vec![Series { rise: Some(0.0), ..series("cheap oscillator", &[101.0, 104.0, 99.0]) }],
            // Not known how it moves: it has the size of the price, and does not follow it.
            vec![series("falls", &[110.0, 100.0, 104.0])],
            vec![flag],
            vec![series("none", &[f64::NAN, f64::NAN, f64::INFINITY])],
        ];
        let group = |series| Group { place: Place::ByValues, series };
        let groups = groups.map(group).to_vec();
        let layout = ChartLayout::new("T".to_owned(), vec![0, 1, 2], price, groups, 1000);
        assert_eq!(names(&layout.top), ["sma"]);
        let below: Vec<Vec<&str>> = layout.below.iter().map(names).collect();
        assert_eq!(below, [vec!["macd", "signal"], vec!["far"], vec!["cheap oscillator"], vec!["falls"]]);
        assert_eq!(layout.shades, [("up".to_owned(), vec![(1, 2)])]);
        assert!(layout.top.span.0 < 100.0 && layout.top.span.1 > 110.0);
        assert!(!layout.candles, "there is no open");
    }

    #[test]
    fn candles_are_drawn_where_each_has_room() {
        let column = vec![1.0; 300];
        let price = || Price { open: column.clone(), high: column.clone(), low: column.clone(), close: column.clone() };
        let drawn = |width| ChartLayout::new(String::new(), (0..300).collect(), price(), Vec::new(), width).candles;
        assert!(drawn(750) && !drawn(749));
    }

    #[test]
    fn a_place_that_was_asked_for_is_kept() {
        let price = Price { close: vec![100.0, 110.0], ..Price::default() };
        let group = |place, name| Group { place, series: vec![series(name, &[104.0, 106.0])] };
        let groups = vec![group(Place::Panel, "sma"), group(Place::Overlay, "oscillator")];
        let layout = ChartLayout::new(String::new(), vec![0, 1], price, groups, 1000);
        assert_eq!((names(&layout.top), names(&layout.below[0])), (vec!["oscillator"], vec!["sma"]));
    }

    #[test]
    fn what_is_called_decides_how_a_series_is_drawn() {
        let of = |text: &str| Series::new(String::new(), text, false, None, vec![40.0, 50.0]);
        assert_eq!((of("rsi(close, 14)").levels, of("rsi()[1]").levels), (vec![30.0, 70.0], vec![]));
        assert_eq!(of("rsi() - rsi(9)").levels, [0.0; 0]);
        let shapes =
            ["macd().hist", "macd().macdhist", "volume", "macd().line", "2 * macd().hist"].map(|t| of(t).shape);
        assert_eq!(shapes, [Shape::Bars, Shape::Bars, Shape::Volume, Shape::Line, Shape::Line]);
        let panel = Panel::of(vec![of("rsi()")]);
        assert!(panel.span.0 < 30.0 && panel.span.1 > 70.0, "levels are inside the panel");
        assert_eq!(Panel::of(vec![of("volume")]).span.0, 0.0);
    }

    #[test]
    fn every_span_has_a_size() {
        for values in [[5.0; 2], [0.0; 2], [f64::NAN; 2], [-3.0; 2], [f64::MAX, f64::MIN]] {
            let (least, most) = padded(extent(values.iter()));
            assert!(least < most, "{values:?}: {least} {most}");
        }
    }
}
