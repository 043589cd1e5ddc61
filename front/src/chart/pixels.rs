//! Texts of a PNG. The drawing library places each letter at a whole pixel, without its bearing, and too high: `cl` becomes a `d`, and a
//! point floats. Here letters are placed where their font says, as a viewer of the SVG does; all else is drawn by the library.

use std::sync::OnceLock;

use ab_glyph::{Font as _, FontRef, Glyph, PxScale, ScaleFont as _, point};
use plotters::backend::BitMapBackend;
use plotters::style::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind};

/// The letters of a PNG; an SVG leaves them to its viewer, and is laid out by their widths.
pub(super) static LABELS_FONT: &[u8] = include_bytes!("font/labels.ttf");
/// The library's size of a font over that of its square, as in its SVG.
const SIZE_OF_SQUARE: f64 = 1.24;
/// From a text's place to its base line, as shares of that square: of a text below its place, and around it. As in the library's SVG.
const BELOW: f32 = 0.76;
const AROUND: f32 = 0.27;

/// The pixels of a picture.
pub(super) struct Pixels<'a>(pub BitMapBackend<'a>);

type Done<T, B> = Result<T, DrawingErrorKind<<B as DrawingBackend>::ErrorType>>;

fn font() -> Option<&'static FontRef<'static>> {
    static FONT: OnceLock<Option<FontRef<'static>>> = OnceLock::new();
    FONT.get_or_init(|| FontRef::try_from_slice(LABELS_FONT).ok()).as_ref()
}

/// The letters of a text from the left end of its base line on, and its width in pixels; `size` is the library's.
fn letters(text: &str, size: f64) -> Option<(Vec<Glyph>, f32)> {
    let font = font()?;
    let square = (size / SIZE_OF_SQUARE) as f32;
    let scale = PxScale::from(square * font.height_unscaled() / font.units_per_em()?);
    let scaled = font.as_scaled(scale);
    let (mut x, mut before, mut letters) = (0.0, None, Vec::new());
    for letter in text.chars() {
        let id = scaled.glyph_id(letter);
        x += before.map_or(0.0, |before| scaled.kern(before, id));
        letters.push(id.with_scale_and_position(scale, point(x, 0.0)));
        x += scaled.h_advance(id);
        before = Some(id);
    }
    Some((letters, x))
}

impl DrawingBackend for Pixels<'_> {
    type ErrorType = <BitMapBackend<'static> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.0.get_size()
    }

    fn ensure_prepared(&mut self) -> Done<(), Self> {
        self.0.ensure_prepared()
    }

    fn present(&mut self) -> Done<(), Self> {
        self.0.present()
    }

    fn draw_pixel(&mut self, at: BackendCoord, colour: BackendColor) -> Done<(), Self> {
        self.0.draw_pixel(at, colour)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Done<(), Self> {
        self.0.draw_line(from, to, style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Done<(), Self> {
        self.0.draw_rect(from, to, style, fill)
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Done<(), Self> {
        let colour = style.color();
        let Some((letters, width)) = letters(text, style.size()) else { return self.0.draw_text(text, style, at) };
        let square = (style.size() / SIZE_OF_SQUARE) as f32;
        // A whole pixel: a horizontal stroke is sharp.
        let base = at.1
            + match style.anchor().v_pos {
                VPos::Top => square * BELOW,
                VPos::Center => square * AROUND,
                VPos::Bottom => -square * AROUND,
            }
            .round() as i32;
        let left = at.0 as f32
            - match style.anchor().h_pos {
                HPos::Left => 0.0,
                HPos::Center => width / 2.0,
                HPos::Right => width,
            };
        let (width, height) = self.0.get_size();
        for mut letter in letters {
            letter.position.x += left;
            let Some(outline) = font().and_then(|font| font.outline_glyph(letter)) else { continue };
            let corner = outline.px_bounds().min;
            let mut covered = Vec::new();
            outline.draw(|x, y, share| covered.push((x as i32, y as i32, share)));
            for (x, y, share) in covered {
                let (x, y) = (corner.x as i32 + x, base + corner.y as i32 + y);
                if (0..width as i32).contains(&x) && (0..height as i32).contains(&y) {
                    self.0.draw_pixel((x, y), BackendColor { alpha: colour.alpha * f64::from(share), ..colour })?;
                }
            }
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(&self, text: &str, style: &S) -> Done<(u32, u32), Self> {
        match letters(text, style.size()) {
            Some((_, width)) => Ok((width.ceil() as u32, (style.size() / SIZE_OF_SQUARE) as u32)),
            None => self.0.estimate_text_size(text, style),
        }
    }
}

#[cfg(test)]
mod tests {
    use plotters::prelude::*;

    use super::*;

    /// Columns of pixels that have ink, of a text that begins at (4, 4).
    fn inked(text: &str) -> Vec<(i32, i32)> {
        let (width, height) = (120, 24);
        let mut pixels = vec![0; width * height * 3];
        {
            let mut backend = Pixels(BitMapBackend::with_buffer(&mut pixels, (width as u32, height as u32)));
            let style = ("sans-serif", 13.0).into_font().color(&WHITE);
            backend.draw_text(text, &style, (4, 4)).unwrap();
            backend.present().unwrap();
        }
        let inked = |at: &usize| pixels[at * 3] > 60;
        (0..width * height).filter(inked).map(|at| ((at % width) as i32, (at / width) as i32)).collect()
    }

    #[test]
    fn a_point_is_on_the_base_line_and_letters_have_room_between_them() {
        let lowest = |text: &str| inked(text).iter().map(|(_, y)| *y).max().unwrap();
        assert_eq!(lowest("."), lowest("1"), "a point does not float");
        assert!(lowest(",") > lowest("1"), "a comma has a tail");
        let columns = |text: &str| inked(text).iter().map(|(x, _)| *x).collect::<std::collections::BTreeSet<i32>>();
        let parted = |text: &str| {
            let all = columns(text);
            let (first, last) = (*all.first().unwrap(), *all.last().unwrap());
            (first..last).any(|x| !all.contains(&x))
        };
        assert!(parted("cl") && !parted("d"), "c and l are two letters");
        let (_, short) = letters("close", 13.0).unwrap();
        assert!((26.0..38.0).contains(&short), "{short}");
    }
}
