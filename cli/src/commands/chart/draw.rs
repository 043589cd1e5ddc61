//! A layout as SVG.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::layout::{ChartLayout, Panel, Price, Series};
use super::ticks;

pub(super) const WIDTH: u32 = 1400;
const TITLE_PIXELS: u32 = 44;
const TOP_PIXELS: u32 = 460;
const PANEL_PIXELS: u32 = 150;
const DATES_PIXELS: u32 = 34;
const LEGEND_PIXELS: u32 = 20;
/// Approximate width of a letter of the legend.
const LETTER_PIXELS: u32 = 7;
/// Width for the labels of values.
pub(super) const LABELS_PIXELS: u32 = 84;
const FONT: &str = "sans-serif";

const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
const RISE: RGBColor = RGBColor(0x1b, 0x8a, 0x5a);
const FALL: RGBColor = RGBColor(0xc4, 0x3c, 0x39);

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

/// Shaded conditions take their colours from this index on, lines from the first.
const SHADES_FROM: usize = 5;

type Drawn<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The picture; `size` is its width and height in pixels, if given.
///
/// # Errors
/// The drawing library's error.
pub(super) fn svg(layout: &ChartLayout, size: Option<(u32, u32)>) -> Drawn<String> {
    let panels = u32::try_from(layout.below.len())?;
    let (width, height) =
        size.unwrap_or((WIDTH, TITLE_PIXELS + TOP_PIXELS + panels.saturating_mul(PANEL_PIXELS) + DATES_PIXELS));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(TITLE_PIXELS);
        title(&head, layout)?;
        let (body, foot) = body.split_vertically(height.saturating_sub(TITLE_PIXELS + DATES_PIXELS));
        // The price gets three shares of the height, each panel below it one.
        let share = height.saturating_sub(TITLE_PIXELS + DATES_PIXELS) / (panels + 3);
        let (top, below) = body.split_vertically(share * 3);
        let dates = ticks::of(&layout.times);
        let (names, top) = top.split_vertically(LEGEND_PIXELS);
        let shaded = layout.shades.iter().enumerate().map(|(i, shade)| (shade.0.as_str(), shade_colour(i)));
        let over = layout.top.lines.iter().enumerate().map(|(i, line)| (line.name.as_str(), line_colour(i)));
        let close = if layout.candles { None } else { Some(("close", INK.to_rgba())) };
        legend(&names, close.into_iter().chain(over).chain(shaded))?;
        let mut chart = panel(&top, layout, &layout.top, &dates)?;
        shades(&mut chart, layout)?;
        if layout.candles {
            candles(&mut chart, &layout.price)?;
        } else {
            line(&mut chart, &layout.price.close, INK.stroke_width(1))?;
        }
        lines(&mut chart, &layout.top.lines)?;
        for (area, of) in below.split_evenly((layout.below.len().max(1), 1)).iter().zip(&layout.below) {
            let (names, area) = area.split_vertically(LEGEND_PIXELS);
            legend(&names, of.lines.iter().enumerate().map(|(i, line)| (line.name.as_str(), line_colour(i))))?;
            let mut chart = panel(&area, layout, of, &dates)?;
            lines(&mut chart, &of.lines)?;
        }
        let style = text(13.0).pos(Pos::new(HPos::Center, VPos::Top));
        let (plot_width, bars) = (f64::from(width.saturating_sub(LABELS_PIXELS)), layout.times.len());
        for (bar, label) in &dates {
            let x = (*bar as f64 + 0.5) / bars as f64 * plot_width;
            foot.draw(&Text::new(label.clone(), (x as i32, 8), style.clone()))?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn text(size: f64) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

fn title(area: &Area<'_>, layout: &ChartLayout) -> Drawn {
    area.draw(&Text::new(layout.title.clone(), (12, 12), text(20.0)))?;
    let (first, last) = (layout.times.first(), layout.times.last());
    if let (Some(first), Some(last)) = (first, last) {
        let span = format!("{} to {}", trawl_market::format_time(*first), trawl_market::format_time(*last));
        let style = text(14.0).pos(Pos::new(HPos::Right, VPos::Top));
        let right = area.dim_in_pixel().0.saturating_sub(12);
        area.draw(&Text::new(span, (i32::try_from(right)?, 15), style))?;
    }
    Ok(())
}

/// An empty panel with its grid: a bar is one unit wide, its middle is at a whole number and a half.
fn panel<'a, 'b>(area: &Area<'b>, layout: &ChartLayout, of: &Panel, dates: &[(usize, String)]) -> Drawn<Chart<'a, 'b>> {
    let bars = layout.times.len() as f64;
    let (least, most) = of.span;
    let mut chart = ChartBuilder::on(area)
        .margin_top(2)
        .margin_bottom(4)
        .set_label_area_size(LabelAreaPosition::Right, LABELS_PIXELS)
        .build_cartesian_2d(0.0..bars, least..most)?;
    let rows = (area.dim_in_pixel().1 / 35).clamp(3, 12) as usize;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_labels(rows)
        .y_label_formatter(&|value| crate::human::readable(*value))
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(text(13.0))
        .draw()?;
    chart.draw_series(dates.iter().map(|(bar, _)| {
        let x = *bar as f64 + 0.5;
        PathElement::new(vec![(x, least), (x, most)], GRID)
    }))?;
    if least < 0.0 && most > 0.0 {
        let zero = PathElement::new(vec![(0.0, 0.0), (bars, 0.0)], RGBColor(0xa0, 0xa0, 0xa0));
        chart.draw_series(std::iter::once(zero))?;
    }
    Ok(chart)
}

fn shade_colour(i: usize) -> RGBAColor {
    LINES[(i + SHADES_FROM) % LINES.len()].mix(0.3)
}

fn line_colour(i: usize) -> RGBAColor {
    LINES[i % LINES.len()].to_rgba()
}

/// Names in a row, each after its colour; those that do not fit are left out.
fn legend<'n>(area: &Area<'_>, names: impl Iterator<Item = (&'n str, RGBAColor)>) -> Drawn {
    let width = area.dim_in_pixel().0.saturating_sub(LABELS_PIXELS);
    let mut x = 12;
    for (name, colour) in names {
        let right = x + 18 + LETTER_PIXELS * u32::try_from(name.chars().count())?;
        if right > width {
            break;
        }
        let at = i32::try_from(x)?;
        area.draw(&Rectangle::new([(at, 6), (at + 12, 14)], colour.filled()))?;
        area.draw(&Text::new(name.to_owned(), (at + 18, 4), text(13.0)))?;
        x = right + 18;
    }
    Ok(())
}

fn shades(chart: &mut Chart<'_, '_>, layout: &ChartLayout) -> Drawn {
    let (least, most) = layout.top.span;
    for (i, (_, stretches)) in layout.shades.iter().enumerate() {
        let style = shade_colour(i).filled();
        let boxes =
            stretches.iter().map(|(from, to)| Rectangle::new([(*from as f64, least), (*to as f64 + 1.0, most)], style));
        chart.draw_series(boxes)?;
    }
    Ok(())
}

fn candles(chart: &mut Chart<'_, '_>, price: &Price) -> Drawn {
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

fn lines(chart: &mut Chart<'_, '_>, of: &[Series]) -> Drawn {
    for (i, series) in of.iter().enumerate() {
        line(chart, &series.values, line_colour(i).stroke_width(2))?;
    }
    Ok(())
}

/// A line with a gap at each NA.
fn line(chart: &mut Chart<'_, '_>, values: &[f64], style: ShapeStyle) -> Drawn {
    let points: Vec<(f64, f64)> = values.iter().enumerate().map(|(bar, value)| (bar as f64 + 0.5, *value)).collect();
    for piece in points.split(|(_, value)| !value.is_finite()).filter(|piece| !piece.is_empty()) {
        chart.draw_series(LineSeries::new(piece.iter().copied(), style))?;
    }
    Ok(())
}
