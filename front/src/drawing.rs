//! A user's mistake as a drawing: the place in the text, what was expected, a suggestion.
//!
//! The plan crate describes a mistake ([`Diagnostic`]); how it looks, on a terminal and in an exception of Python, is decided here and
//! nowhere else.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use trawl_plan::Diagnostic;

/// Columns a drawing may take; longer lines are cut to what is around the place.
const WIDTH_MAX: usize = 140;
/// Bytes of one line kept on either side of a place. The renderer's own trimming is quadratic in very long lines.
const LINE_BYTES_AROUND: usize = 200;

fn renderer(colour: bool) -> Renderer {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    renderer.decor_style(DecorStyle::Ascii).term_width(WIDTH_MAX)
}

/// One error without a place: `error: message`, then a line of help. No line break at its end.
pub fn error_text(message: &str, help: Option<&str>, colour: bool) -> String {
    let renderer = renderer(colour);
    let mut text = renderer.render(&[Group::with_title(Level::ERROR.primary_title(clean(message)))]);
    if let Some(help) = help {
        // Rendered separately: together they would be joined by an empty gutter.
        text.push('\n');
        text.push_str(&renderer.render(&[Group::with_title(Level::HELP.primary_title(clean(help)))]));
    }
    text
}

/// A remark that does not stop a command: `warning: message`. No line break at its end.
pub fn warning_text(message: &str, colour: bool) -> String {
    renderer(colour).render(&[Group::with_title(Level::WARNING.primary_title(clean(message)))])
}

/// Every mistake, in order, each followed by a line break.
pub fn draw_all(diagnostics: &[Diagnostic], colour: bool) -> String {
    let mut out = String::new();
    for (i, diagnostic) in diagnostics.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        out.push_str(&draw(diagnostic, colour));
        out.push('\n');
    }
    out
}

/// One mistake as text.
pub fn draw(diagnostic: &Diagnostic, colour: bool) -> String {
    // Without a text there is no place to draw, so the title names the clause.
    let title = match diagnostic.text.is_empty() {
        true => format!("{} ({} is empty)", diagnostic.message, diagnostic.clause),
        false => diagnostic.message.clone(),
    };
    let mut group = Group::with_title(Level::ERROR.primary_title(clean(&title)));
    if !diagnostic.text.is_empty() {
        let excerpt = excerpt(&diagnostic.text, &diagnostic.span);
        let annotation = AnnotationKind::Primary.span(excerpt.span).label(clean(&diagnostic.label));
        let snippet = Snippet::source(excerpt.text)
            .line_start(excerpt.line)
            .path(diagnostic.clause.clone())
            .annotation(annotation);
        group = group.element(snippet);
    }
    let mut groups = vec![group];
    if let Some(help) = &diagnostic.help {
        groups.push(Group::with_title(Level::HELP.secondary_title(clean(help))));
    }
    renderer(colour).render(&groups)
}

/// Replaces control characters, so that other people's files cannot control the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// The lines a span touches.
struct Excerpt {
    text: String,
    span: std::ops::Range<usize>,
    /// 1-based number of the first line.
    line: usize,
}

/// Cuts out the line (or lines) around a span, shortened when very long; the span is brought to character borders.
fn excerpt(text: &str, span: &std::ops::Range<usize>) -> Excerpt {
    let start = floor_boundary(text, span.start);
    let end = floor_boundary(text, span.end.max(span.start)).max(start);
    let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
    let line_end = text[end..].find('\n').map_or(text.len(), |i| end + i);
    let from = if start - line_start > LINE_BYTES_AROUND {
        floor_boundary(text, start - LINE_BYTES_AROUND)
    } else {
        line_start
    };
    // When the span is longer than the window its beginning is shown: that is where the mistake starts.
    let end = floor_boundary(text, end.min(start + 2 * LINE_BYTES_AROUND)).max(start);
    let to = floor_boundary(text, line_end.min(end + LINE_BYTES_AROUND)).max(end);
    let (before, after) = (if from > line_start { "..." } else { "" }, if to < line_end { "..." } else { "" });
    let shown: String = text[from..to]
        .chars()
        .flat_map(|c| {
            // Each byte is replaced by one byte, so that the span's offsets remain valid.
            let plain = if c.is_ascii_control() && c != '\n' { ' ' } else { c };
            std::iter::once(plain)
        })
        .collect();
    Excerpt {
        text: format!("{before}{shown}{after}"),
        span: start - from + before.len()..end - from + before.len(),
        line: text[..from].matches('\n').count() + 1,
    }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mistake(text: &str, span: std::ops::Range<usize>) -> Diagnostic {
        Diagnostic {
            message: "unknown function 'smaa'".to_owned(),
            clause: "where".to_owned(),
            text: text.to_owned(),
            span,
            label: "no function of this name".to_owned(),
            help: Some("did you mean 'sma'?".to_owned()),
        }
    }

    #[test]
    fn a_mistake_is_drawn_with_place_label_and_help() {
        let text = draw(&mistake("close > smaa(close, 50)", 8..12), false);
        assert_eq!(
            text,
            "error: unknown function 'smaa'\n \
             --> where:1:9\n  |\n\
             1 | close > smaa(close, 50)\n  \
             |         ^^^^ no function of this name\n  |\n\
             help: did you mean 'sma'?"
        );
    }

    #[test]
    fn a_place_behind_wide_characters_is_under_them() {
        let text = draw(&mistake("'é世界' == smaa(close)", 14..18), false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[3].contains("smaa(close)"), "{text}");
        assert!(lines[4].contains("^^^^ no function"), "{text}");
    }

    #[test]
    fn a_very_long_line_is_truncated_around_the_place() {
        let long = format!("{}smaa(close){}", "close + ".repeat(5000), " + close".repeat(5000));
        let text = draw(&mistake(&long, 40_000..40_004), false);
        assert!(text.len() < 2000, "{} bytes", text.len());
        assert!(text.contains("smaa(close)") && text.contains("^^^^"), "{text}");
    }

    #[test]
    fn a_document_shows_the_line_of_the_place() {
        let text = draw(&mistake("dataset = 'us5'\nwheer = 'close > 1'\n", 16..21), false);
        assert!(text.contains("2 | wheer"), "{text}");
        assert!(!text.contains("dataset ="), "{text}");
    }

    proptest! {
        #[test]
        fn any_text_and_span_is_drawn_without_panic(text in "\\PC{0,40}[\\x00-\\x7f]{0,20}\\PC{0,10}", a in 0usize..200, b in 0usize..200) {
            prop_assert!(draw(&mistake(&text, a..b), false).contains("unknown function"));
        }
    }
}
