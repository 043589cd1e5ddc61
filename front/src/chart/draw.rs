//! A layout as a picture: SVG, or the pixels of a PNG.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis;
use super::layout::{ChartLayout, Panel, Price, Series, Shape};
use super::pixels::{LABELS_FONT, Pixels};
use super::ticks;

/// Width of a chart in pixels, if nothing else is asked for.
pub const WIDTH: u32 = 1400;
const TOP_PIXELS: u32 = 460;
const PANEL_PIXELS: u32 = 150;
/// Columns and rows of a sheet.
const SHEET: (usize, usize) = (4, 5);
/// Most charts of a sheet.
pub const SHEET_CHARTS_MAX: usize = SHEET.0 * SHEET.1;
/// Width and height of one chart of a sheet.
pub const CELL_PIXELS: (u32, u32) = (420, 300);
/// Free height around a sheet's rows of names.
const SHEET_LEGEND_MARGIN: u32 = 6;
/// Most rows of names of a sheet.
const SHEET_LEGEND_ROWS_MAX: u32 = 6;
/// Free width after a name.
const NAME_GAP: u32 = 18;
/// Approximate width of a letter, as a share of its size.
const LETTER: f64 = 0.54;
/// Width for the labels of values.
pub const LABELS_PIXELS: u32 = 84;
/// Height of a last value on the axis.
const LABEL_PIXELS: i32 = 16;
/// Free width between an axis and its labels.
const LABEL_INDENT: i32 = 7;
const FONT: &str = "sans-serif";

const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
const ZERO: RGBColor = RGBColor(0xa0, 0xa0, 0xa0);
const RISE: RGBColor = RGBColor(0x1b, 0x8a, 0x5a);
const FALL: RGBColor = RGBColor(0xc4, 0x3c, 0x39);
const MARK: RGBColor = RGBColor(0x5b, 0x2a, 0x86);

/// Colours that colour-blind readers can distinguish (Okabe and Ito), without the yellow, which is not visible on
/// white.
const LINES: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x7f, 0x5f, 0x3f),
];

/// Further rounds of the same colours, for more lines than there are colours: how much of white or black is mixed in.
const ROUNDS: [(RGBColor, f64); 4] = [(BLACK, 0.45), (WHITE, 0.45), (BLACK, 0.7), (WHITE, 0.7)];

/// Shaded conditions take their colours from this index on, lines from the first.
const SHADES_FROM: usize = 5;

type Drawn<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Area<B> = DrawingArea<B, Shift>;
type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// How large the parts of a chart are.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    title: u32,
    title_font: f64,
    font: f64,
    legend: u32,
    dates: u32,
    labels: u32,
    /// Size of a mark.
    mark: i32,
    /// Left free on the right and below.
    margin: i32,
}

const WHOLE: Sizes =
    Sizes { title: 44, title_font: 20.0, font: 13.0, legend: 20, dates: 34, labels: LABELS_PIXELS, mark: 6, margin: 0 };
const CELL: Sizes =
    Sizes { title: 24, title_font: 14.0, font: 11.0, legend: 0, dates: 20, labels: 56, mark: 4, margin: 8 };

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub enum Picture<'a> {
    /// One chart; its width and height in pixels, if given.
    One(&'a ChartLayout, Option<(u32, u32)>),
    /// Several charts beside and below each other.
    Sheet(&'a [ChartLayout], Option<(u32, u32)>),
}

impl Picture<'_> {
    /// Width and height in pixels.
    pub fn size(&self) -> (u32, u32) {
        match self {
            Self::One(layout, size) => size.unwrap_or_else(|| {
                let panels: f64 = layout.below.iter().map(|panel| panel.share).sum();
                (WIDTH, WHOLE.title + TOP_PIXELS + (panels * f64::from(PANEL_PIXELS)) as u32 + WHOLE.dates)
            }),
            Self::Sheet(charts, size) => size.unwrap_or_else(|| {
                let (columns, rows) = grid(charts.len());
                let width = CELL_PIXELS.0 * columns as u32;
                let lines = lines_of(charts);
                let names = names_of(charts, &lines);
                (width, CELL_PIXELS.1 * rows as u32 + sheet_legend_pixels(&names, width))
            }),
        }
    }

    fn draw<B: DrawingBackend>(&self, root: &Area<B>) -> Drawn
    where
        B::ErrorType: 'static,
    {
        root.fill(&WHITE)?;
        match self {
            Self::One(layout, _) => chart(root, layout, &[], WHOLE)?,
            Self::Sheet(charts, _) => {
                let (columns, rows) = grid(charts.len());
                let lines = lines_of(charts);
                let names = names_of(charts, &lines);
                let (area, root) = root.split_vertically(sheet_legend_pixels(&names, root.dim_in_pixel().0));
                legend(&area.margin(4, 0, 0, 0), names.into_iter(), WHOLE)?;
                for (area, layout) in root.split_evenly((rows, columns)).iter().zip(*charts) {
                    chart(area, layout, &lines, CELL)?;
                }
            }
        }
        root.present()?;
        Ok(())
    }

    /// The picture as SVG.
    ///
    /// # Errors
    /// The drawing library's error.
    pub fn svg(&self) -> Drawn<String> {
        register_font()?;
        let mut svg = String::new();
        self.draw(&SVGBackend::with_string(&mut svg, self.size()).into_drawing_area())?;
        Ok(svg)
    }

    /// The picture as PNG.
    ///
    /// # Errors
    /// Those of the libraries that draw and encode.
    pub fn png(&self) -> Drawn<Vec<u8>> {
        register_font()?;
        let (width, height) = self.size();
        let mut pixels = vec![0; width as usize * height as usize * 3];
        self.draw(&Pixels(BitMapBackend::with_buffer(&mut pixels, (width, height))).into_drawing_area())?;
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&pixels)?;
        writer.finish()?;
        Ok(bytes)
    }
}

fn register_font() -> Drawn {
    let registered = plotters::style::register_font(FONT, FontStyle::Normal, LABELS_FONT);
    registered.map_err(|_| "the font of the labels is damaged".into())
}

/// Columns and rows for so many charts.
fn grid(charts: usize) -> (usize, usize) {
    let columns = charts.clamp(1, SHEET.0);
    (columns, charts.div_ceil(columns).max(1))
}

/// One chart with its title, its panels and its dates. `shared`: as [`colour_of`].
fn chart<B: DrawingBackend>(root: &Area<B>, layout: &ChartLayout, shared: &[&str], sizes: Sizes) -> Drawn
where
    B::ErrorType: 'static,
{
    let root = root.margin(0, sizes.margin, 0, sizes.margin);
    let (width, height) = root.dim_in_pixel();
    let (head, body) = root.split_vertically(sizes.title);
    title(&head, layout, sizes)?;
    let inside = height.saturating_sub(sizes.title + sizes.dates);
    let (body, foot) = body.split_vertically(inside);
    // The price gets three shares of the height, a panel below it one or less.
    let share = f64::from(inside) / (3.0 + layout.below.iter().map(|panel| panel.share).sum::<f64>());
    let (top, mut below) = body.split_vertically((share * 3.0) as u32);
    let plot = f64::from(width.saturating_sub(sizes.labels));
    let dates = ticks::of(&layout.times, if sizes.legend == 0 { 4 } else { ticks::DATES_MAX });
    let dates = ticks::apart(dates, layout.times.len(), |label| f64::from(text_pixels(label, sizes.font) + 8) / plot);
    let (names, top) = top.split_vertically(sizes.legend);
    if sizes.legend > 0 {
        legend(&names, over_price(layout, shared), sizes)?;
    }
    let close = layout.price.close.iter().rfind(|value| value.is_finite());
    let before = layout.price.open.last().copied().unwrap_or(f64::NAN);
    let colour = close.map_or(INK, |close| if *close < before { FALL } else { RISE });
    let close = close.map(|value| (*value, colour.to_rgba()));
    let last: Vec<Last> = close.into_iter().chain(last_values(&layout.top.lines, shared)).collect();
    let mut chart = panel(&top, layout, (&layout.top, &last), &dates, sizes)?;
    shades(&mut chart, layout)?;
    if layout.candles {
        candles(&mut chart, &layout.price)?;
    } else {
        line(&mut chart, &layout.price.close, INK.stroke_width(1))?;
    }
    lines(&mut chart, (&layout.top.lines, shared), layout)?;
    marks(&mut chart, layout, sizes)?;
    for of in &layout.below {
        let (area, rest) = below.split_vertically((share * of.share) as u32);
        below = rest;
        let (names, area) = area.split_vertically(sizes.legend);
        if sizes.legend > 0 {
            legend(&names, in_panel(of, shared), sizes)?;
        }
        let mut chart = panel(&area, layout, (of, &last_values(&of.lines, shared)), &dates, sizes)?;
        lines(&mut chart, (&of.lines, shared), layout)?;
    }
    let style = text(sizes.font).pos(Pos::new(HPos::Center, VPos::Top));
    for (bar, label) in &dates {
        let x = (*bar as f64 + 0.5) / layout.times.len() as f64 * plot;
        foot.draw(&Text::new(label.clone(), (x as i32, 6), style.clone()))?;
    }
    Ok(())
}

/// Names and colours of what is drawn in the panel of the price.
fn over_price<'n>(layout: &'n ChartLayout, shared: &'n [&str]) -> impl Iterator<Item = (&'n str, RGBAColor)> {
    let close = if layout.candles { None } else { Some(("close", INK.to_rgba())) };
    let lines = layout.top.lines.iter().enumerate();
    let over = lines.map(move |(i, line)| (line.name.as_str(), colour_of(shared, i, &line.name)));
    let shaded = layout.shades.iter().enumerate().map(|(i, shade)| (shade.0.as_str(), shade_colour(i)));
    let marked = layout.marks.as_ref().map(|(name, _)| (name.as_str(), MARK.to_rgba()));
    close.into_iter().chain(over).chain(shaded).chain(marked)
}

/// Names and colours of what is drawn in a panel below.
fn in_panel<'n>(panel: &'n Panel, shared: &'n [&str]) -> impl Iterator<Item = (&'n str, RGBAColor)> {
    let colour = move |i: usize, line: &Series| match line.shape {
        Shape::Volume => ZERO.to_rgba(),
        Shape::Line | Shape::Bars => colour_of(shared, i, &line.name),
    };
    panel.lines.iter().enumerate().map(move |(i, line)| (line.name.as_str(), colour(i, line)))
}

/// Names of the lines of a sheet's charts, each once. A line's place among them is its colour in every chart, whatever panel it is in.
fn lines_of(charts: &[ChartLayout]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    let panels = charts.iter().flat_map(|chart| std::iter::once(&chart.top).chain(&chart.below));
    for line in panels.flat_map(|panel| &panel.lines).filter(|line| line.shape != Shape::Volume) {
        if !names.contains(&line.name.as_str()) {
            names.push(&line.name);
        }
    }
    names
}

/// Names and colours of the charts of a sheet, each once, from above to below.
fn names_of<'n>(charts: &'n [ChartLayout], shared: &'n [&str]) -> Vec<(&'n str, RGBAColor)> {
    let mut names: Vec<(&str, RGBAColor)> = Vec::new();
    for chart in charts {
        let drawn = over_price(chart, shared).chain(chart.below.iter().flat_map(|panel| in_panel(panel, shared)));
        for one in drawn {
            if !names.contains(&one) {
                names.push(one);
            }
        }
    }
    names
}

/// Height of the names of a sheet of this width.
fn sheet_legend_pixels(names: &[(&str, RGBAColor)], width: u32) -> u32 {
    let places = legend_places(names.iter().map(|(name, _)| *name), width.saturating_sub(WHOLE.labels), WHOLE.font);
    let rows = places.last().map_or(1, |(row, _)| row + 1).min(SHEET_LEGEND_ROWS_MAX);
    rows * WHOLE.legend + SHEET_LEGEND_MARGIN
}

fn text(size: f64) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// About how wide a text is.
fn text_pixels(text: &str, size: f64) -> u32 {
    (text.chars().count() as f64 * size * LETTER) as u32
}

fn title<B: DrawingBackend>(area: &Area<B>, layout: &ChartLayout, sizes: Sizes) -> Drawn
where
    B::ErrorType: 'static,
{
    let width = area.dim_in_pixel().0;
    let top = (sizes.title.saturating_sub(sizes.title_font as u32) / 2) as i32;
    area.draw(&Text::new(layout.title.clone(), (12, top), text(sizes.title_font)))?;
    // Where both do not fit, the title is the more important.
    let used = text_pixels(&layout.title, sizes.title_font) + text_pixels(&layout.span, sizes.font + 1.0) + 36;
    if used < width {
        let style = text(sizes.font + 1.0).pos(Pos::new(HPos::Right, VPos::Top));
        let right = i32::try_from(width.saturating_sub(12))?;
        area.draw(&Text::new(layout.span.clone(), (right, top + 3), style))?;
    }
    Ok(())
}

/// A last value, and the colour of what it is of.
type Last = (f64, RGBAColor);

/// An empty panel with its grid and its axis: a bar is one unit wide, its middle is at a whole number and a half. Last values are on the
/// axis, the first of them first where there is not room for all.
fn panel<'a, B: DrawingBackend + 'a>(
    area: &Area<B>,
    layout: &ChartLayout,
    (of, last): (&Panel, &[Last]),
    dates: &[(usize, String)],
    sizes: Sizes,
) -> Drawn<Chart<'a, B>>
where
    B::ErrorType: 'static,
{
    let bars = layout.times.len() as f64;
    let (least, most) = of.span;
    let mut chart = ChartBuilder::on(area)
        .margin_top(2)
        .margin_bottom(4)
        .set_label_area_size(LabelAreaPosition::Right, sizes.labels)
        .build_cartesian_2d(0.0..bars, least..most)?;
    let y_of = |value: f64| chart.backend_coord(&(0.0, value)).1;
    let (top, bottom) = (y_of(most), y_of(least));
    let wanted: Vec<i32> = last.iter().map(|(value, _)| y_of(*value)).collect();
    let places = axis::apart(&wanted, LABEL_PIXELS, (top, bottom));
    let reach = sizes.font as i32;
    let is_covered = |value: f64| places.iter().flatten().any(|place| (place - y_of(value)).abs() < reach);
    let labels = axis::labels(of.span, f64::from(bottom - top), sizes.font + 4.0, is_covered);
    for (value, _) in &labels {
        chart.draw_series(std::iter::once(PathElement::new(vec![(0.0, *value), (bars, *value)], GRID)))?;
    }
    chart.draw_series(dates.iter().map(|(bar, _)| {
        let x = *bar as f64 + 0.5;
        PathElement::new(vec![(x, least), (x, most)], GRID)
    }))?;
    chart.draw_series(std::iter::once(PathElement::new(vec![(bars, least), (bars, most)], GRID)))?;
    let style = text(sizes.font).pos(Pos::new(HPos::Left, VPos::Center));
    for (value, label) in labels.into_iter().filter(|(_, label)| !label.is_empty()) {
        let label = EmptyElement::at((bars, value)) + Text::new(label, (LABEL_INDENT, 0), style.clone());
        chart.draw_series(std::iter::once(label))?;
    }
    let zero = if least < 0.0 && most > 0.0 { Some(0.0) } else { None };
    for level in zero.iter().chain(&of.levels) {
        chart.draw_series(std::iter::once(PathElement::new(vec![(0.0, *level), (bars, *level)], ZERO)))?;
    }
    for level in &of.levels {
        let style = text(sizes.font - 2.0).color(&ZERO).pos(Pos::new(HPos::Left, VPos::Bottom));
        let label = EmptyElement::at((0.0, *level)) + Text::new(short(*level), (4, -1), style);
        chart.draw_series(std::iter::once(label))?;
    }
    let half = LABEL_PIXELS / 2;
    let width = i32::try_from(sizes.labels)? - 6;
    for (((value, colour), wanted), place) in last.iter().zip(wanted).zip(places) {
        let Some(place) = place else { continue };
        let moved = place - wanted;
        let style = text(sizes.font).color(&WHITE).pos(Pos::new(HPos::Left, VPos::Center));
        let label = EmptyElement::at((bars, *value))
            + Rectangle::new([(2, moved - half), (width, moved + half)], colour.filled())
            + Text::new(brief(*value), (LABEL_INDENT, moved), style);
        chart.draw_series(std::iter::once(label))?;
    }
    Ok(chart)
}

/// A value on an axis: large ones, such as volumes, with a unit.
fn short(value: f64) -> String {
    let (size, unit) = match value.abs() {
        v if v >= 1e9 => (1e9, "B"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e5 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let rounded = if size > 1.0 { (value / size * 100.0).round() / 100.0 } else { value };
    format!("{}{unit}", crate::human::readable(rounded))
}

/// A last value: four digits behind the first one are enough beside the axis.
fn brief(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || !(1e-4..1e5).contains(&size) {
        return short(value);
    }
    let decimals = (3 - size.log10().floor() as i32).clamp(2, 7) as usize;
    format!("{value:.decimals$}")
}

fn shade_colour(i: usize) -> RGBAColor {
    LINES[(i + SHADES_FROM) % LINES.len()].mix(0.3)
}

/// The colour of a line: by its place among `shared`, the names of the lines of all charts of a sheet; in a single chart, which has none,
/// by its place in its panel.
fn colour_of(shared: &[&str], place: usize, name: &str) -> RGBAColor {
    line_colour(shared.iter().position(|other| *other == name).unwrap_or(place))
}

fn line_colour(i: usize) -> RGBAColor {
    let colour = LINES[i % LINES.len()];
    match ROUNDS.get((i / LINES.len()).wrapping_sub(1) % (ROUNDS.len() + 1)) {
        Some((other, share)) if i >= LINES.len() => mixed(colour, *other, *share).to_rgba(),
        _ => colour.to_rgba(),
    }
}

fn mixed(one: RGBColor, other: RGBColor, share: f64) -> RGBColor {
    let channel = |a: u8, b: u8| (f64::from(a) * (1.0 - share) + f64::from(b) * share).round() as u8;
    RGBColor(channel(one.0, other.0), channel(one.1, other.1), channel(one.2, other.2))
}

/// Row and left edge of each name: names are set in rows.
fn legend_places<'n>(names: impl Iterator<Item = &'n str>, width: u32, font: f64) -> Vec<(u32, u32)> {
    let (mut row, mut x) = (0, 12);
    let mut places = Vec::new();
    for name in names {
        let needed = 18 + text_pixels(name, font);
        if x > 12 && x + needed > width {
            (row, x) = (row + 1, 12);
        }
        places.push((row, x));
        x += needed + NAME_GAP;
    }
    places
}

/// Names in rows, each after its colour; those for which the area has no row are left out.
fn legend<'n, B: DrawingBackend>(
    area: &Area<B>,
    names: impl Iterator<Item = (&'n str, RGBAColor)>,
    sizes: Sizes,
) -> Drawn
where
    B::ErrorType: 'static,
{
    let (width, height) = area.dim_in_pixel();
    let names: Vec<(&str, RGBAColor)> = names.collect();
    let places = legend_places(names.iter().map(|(name, _)| *name), width.saturating_sub(sizes.labels), sizes.font);
    for ((name, colour), (row, x)) in names.into_iter().zip(places) {
        if (row + 1) * sizes.legend > height.max(sizes.legend) {
            break;
        }
        let (at, top) = (i32::try_from(x)?, i32::try_from(row * sizes.legend)?);
        area.draw(&Rectangle::new([(at, top + 6), (at + 12, top + 14)], colour.filled()))?;
        area.draw(&Text::new(name.to_owned(), (at + 18, top + 4), text(sizes.font)))?;
    }
    Ok(())
}

fn shades<B: DrawingBackend>(chart: &mut Chart<'_, B>, layout: &ChartLayout) -> Drawn
where
    B::ErrorType: 'static,
{
    let (least, most) = layout.top.span;
    for (i, (_, stretches)) in layout.shades.iter().enumerate() {
        let style = shade_colour(i).filled();
        let boxes =
            stretches.iter().map(|(from, to)| Rectangle::new([(*from as f64, least), (*to as f64 + 1.0, most)], style));
        chart.draw_series(boxes)?;
    }
    Ok(())
}

fn candles<B: DrawingBackend>(chart: &mut Chart<'_, B>, price: &Price) -> Drawn
where
    B::ErrorType: 'static,
{
    let bars = price.open.iter().zip(&price.high).zip(price.low.iter().zip(&price.close));
    let finite = bars.enumerate().filter(|(_, ((o, h), (l, c)))| [o, h, l, c].iter().all(|x| x.is_finite()));
    let sticks = finite.map(|(bar, ((open, high), (low, close)))| {
        let (x, colour) = (bar as f64 + 0.5, if close >= open { RISE } else { FALL });
        let body = Rectangle::new([(x - 0.35, open.min(*close)), (x + 0.35, open.max(*close))], colour.filled());
        (PathElement::new(vec![(x, *low), (x, *high)], colour), body)
    });
    let (wicks, bodies): (Vec<_>, Vec<_>) = sticks.unzip();
    chart.draw_series(wicks)?;
    chart.draw_series(bodies)?;
    Ok(())
}

fn lines<B: DrawingBackend>(chart: &mut Chart<'_, B>, (of, shared): (&[Series], &[&str]), layout: &ChartLayout) -> Drawn
where
    B::ErrorType: 'static,
{
    // Bars first: lines over them stay visible.
    for (i, series) in of.iter().enumerate().filter(|(_, series)| series.shape != Shape::Line) {
        bars(chart, series, colour_of(shared, i, &series.name), layout)?;
    }
    for (i, series) in of.iter().enumerate().filter(|(_, series)| series.shape == Shape::Line) {
        line(chart, &series.values, colour_of(shared, i, &series.name).stroke_width(2))?;
    }
    Ok(())
}

/// Bars from zero; those of volumes have the colour of their candle.
fn bars<B: DrawingBackend>(chart: &mut Chart<'_, B>, of: &Series, colour: RGBAColor, layout: &ChartLayout) -> Drawn
where
    B::ErrorType: 'static,
{
    let price = &layout.price;
    let finite = of.values.iter().enumerate().filter(|(_, value)| value.is_finite());
    let boxes = finite.map(|(bar, value)| {
        let colour = match (of.shape, price.open.get(bar), price.close.get(bar)) {
            (Shape::Volume, Some(open), Some(close)) if close < open => FALL.mix(0.55),
            (Shape::Volume, Some(_), Some(_)) => RISE.mix(0.55),
            (Shape::Volume, ..) => ZERO.to_rgba(),
            _ => colour,
        };
        let x = bar as f64 + 0.5;
        Rectangle::new([(x - 0.35, value.min(0.0)), (x + 0.35, value.max(0.0))], colour.filled())
    });
    chart.draw_series(boxes)?;
    Ok(())
}

/// A line with a gap at each NA.
fn line<B: DrawingBackend>(chart: &mut Chart<'_, B>, values: &[f64], style: ShapeStyle) -> Drawn
where
    B::ErrorType: 'static,
{
    let points: Vec<(f64, f64)> = values.iter().enumerate().map(|(bar, value)| (bar as f64 + 0.5, *value)).collect();
    for piece in points.split(|(_, value)| !value.is_finite()).filter(|piece| !piece.is_empty()) {
        chart.draw_series(LineSeries::new(piece.iter().copied(), style))?;
    }
    Ok(())
}

/// A triangle below each bar that a scan matches.
fn marks<B: DrawingBackend>(chart: &mut Chart<'_, B>, layout: &ChartLayout, sizes: Sizes) -> Drawn
where
    B::ErrorType: 'static,
{
    let Some((_, marked)) = &layout.marks else { return Ok(()) };
    let low = |bar: usize| layout.price.low.get(bar).or(layout.price.close.get(bar)).copied().filter(|v| v.is_finite());
    let placed = marked.iter().filter_map(|bar| Some((*bar as f64 + 0.5, low(*bar)?)));
    chart.draw_series(
        placed.map(|at| EmptyElement::at(at) + TriangleMarker::new((0, sizes.mark + 4), sizes.mark, MARK.filled())),
    )?;
    Ok(())
}

/// The last values of lines that are shown on the axis. `shared`: as [`colour_of`].
fn last_values(of: &[Series], shared: &[&str]) -> Vec<Last> {
    let shown = of.iter().enumerate().filter(|(_, series)| series.shape != Shape::Volume);
    let last =
        shown.filter_map(|(i, series)| Some((i, series.values.last().copied().filter(|value| value.is_finite())?)));
    last.map(|(i, value)| (value, colour_of(shared, i, &of[i].name))).collect()
}

#[cfg(test)]
mod tests;
