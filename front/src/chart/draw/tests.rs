use super::*;

#[test]
fn large_values_have_a_unit() {
    let all = [12.5, 99_999.0, 123_456.0, -2_500_000.0, 3.2e9].map(short);
    assert_eq!(all, ["12.5", "99999", "123.46k", "-2.5M", "3.2B"]);
    assert_eq!(
        [57.1872, 202.91, 0.638523, 12345.6, 2.5e6, 0.0].map(brief),
        ["57.19", "202.91", "0.6385", "12345.60", "2.5M", "0"]
    );
}

#[test]
fn as_many_lines_as_a_picture_may_have_differ_in_colour() {
    let colours: Vec<RGBAColor> = (0..crate::chart::EXPRESSIONS_MAX).map(line_colour).collect();
    for (i, colour) in colours.iter().enumerate() {
        assert!(!colours[..i].contains(colour), "{i}");
    }
    let shared = ["sma(50)", "rsi()"];
    assert_eq!(colour_of(&shared, 0, "rsi()"), line_colour(1), "in a panel of its own too");
    assert_eq!(colour_of(&[], 0, "rsi()"), line_colour(0));
}

#[test]
fn names_that_do_not_fit_are_in_the_next_row() {
    let places = legend_places(["a".repeat(40).as_str(), "b", "c"].into_iter(), 360, 13.0);
    assert_eq!(places.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [0, 0, 1], "{places:?}");
    assert_eq!(places[2].1, places[0].1);
}

#[test]
fn a_sheet_has_as_many_rows_as_it_needs() {
    assert_eq!([1, 3, 4, 5, 20].map(grid), [(1, 1), (3, 1), (4, 1), (4, 2), (4, 5)]);
}
