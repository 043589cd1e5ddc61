//! A resident state that receives bar after bar has the values of the whole history, whichever symbols have a bar.

use proptest::prelude::*;
use trawl_kernels::{NoCancel, Resident, ResidentError, SymbolInput, evaluate_last};
use trawl_plan::{Program, ScanDocument, compile_scan};

use crate::fused::lowered;
use crate::properties::{bars, condition, input, number, schema};
use crate::resume::{Random, catalogue, classifications, market, program};

fn bits(x: f64) -> u64 {
    if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }
}

/// Begins some way into the symbols' bars and adds the rest, one at a time; on some days some symbols, or most, have
/// none. Returns symbol and output that differ from the whole history, if any.
fn differs(program: &Program, market: &[Vec<Vec<f64>>], random: &mut Random) -> Option<(usize, usize)> {
    let whole: Vec<SymbolInput<'_>> = market.iter().map(|bars| input(program, bars, bars[0].len())).collect();
    let mut bars: Vec<usize> = whole.iter().map(|s| s.visible.saturating_sub(random.below(60))).collect();
    let at = |bars: &[usize]| -> Vec<SymbolInput<'_>> {
        market.iter().zip(bars).map(|(symbol, visible)| input(program, symbol, *visible)).collect()
    };
    let mut resident = Resident::new(&lowered(program), &at(&bars), &NoCancel).expect("not cancelled");
    let mut idle = 1;
    for day in 0.. {
        if day % 7 == 0 || bars.iter().zip(&whole).all(|(n, s)| *n == s.visible) {
            let expected = evaluate_last(program, &at(&bars), &NoCancel).expect("not cancelled");
            for (symbol, values) in expected.iter().enumerate() {
                assert_eq!(resident.bars(symbol), bars[symbol]);
                // The batch has no values for a symbol without a bar.
                let known = values.iter().enumerate().filter(|_| bars[symbol] > 0);
                for (output, value) in known {
                    if bits(resident.value(symbol, output)) != bits(*value) {
                        return Some((symbol, output));
                    }
                }
            }
        }
        if bars.iter().zip(&whole).all(|(n, s)| *n == s.visible) {
            return None;
        }
        idle = if random.below(9) == 0 { 1 + random.below(4) } else { idle };
        let present: Vec<bool> =
            bars.iter().zip(&whole).map(|(n, s)| *n < s.visible && random.below(4) >= idle.min(3)).collect();
        let column = |c: usize| -> Vec<f64> {
            let of = |(s, n): (&SymbolInput<'_>, &usize)| s.columns[c].get(*n).copied().unwrap_or(-3e7);
            whole.iter().zip(&bars).map(of).collect()
        };
        let columns: Vec<Vec<f64>> = (0..program.inputs.len()).map(column).collect();
        let columns: Vec<&[f64]> = columns.iter().map(Vec::as_slice).collect();
        let all = present.iter().all(|p| *p).then_some(());
        resident.push(&columns, all.map_or(Some(&present), |()| None)).expect("fits");
        bars.iter_mut().zip(&present).for_each(|(n, has_bar)| *n += usize::from(*has_bar));
    }
    None
}

#[test]
fn every_function_is_updated_with_the_bits_of_the_whole_history() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for items in catalogue().chunks(15) {
        let program = program(items);
        for symbols in [5, 40] {
            let market = market(symbols, 260, &mut random);
            let differs = differs(&program, &market, &mut random);
            assert_eq!(differs.map(|(symbol, output)| (symbol, &items[output])), None);
        }
    }
}

#[test]
fn every_function_alone_is_updated_whichever_bar_numbers_share_a_tile() {
    let mut random = Random(0x9e6c_63d0_676a_9a99);
    let market = market(24, 150, &mut random);
    for call in catalogue() {
        let program = program(std::slice::from_ref(&call));
        assert_eq!(differs(&program, &market, &mut random), None, "{call}");
    }
}

#[test]
fn classifications_are_updated_with_the_bits_of_the_whole_history() {
    let mut random = Random(0x1405_7b7e_f767_814f);
    for (call, program) in classifications() {
        for symbols in [5, 40] {
            let market = market(symbols, 380, &mut random);
            assert_eq!(differs(&program, &market, &mut random), None, "{call}");
        }
    }
}

#[test]
fn symbols_of_many_ages_share_tiles() {
    let items = ["sma(close, 10)", "ema(close, 5)", "max(high, 4)"].map(str::to_owned);
    let program = program(&items);
    let market = market(400, 400, &mut Random(5));
    let whole: Vec<SymbolInput<'_>> = market.iter().map(|bars| input(&program, bars, bars[0].len())).collect();
    let mut ages: Vec<usize> = whole.iter().map(|s| s.visible).collect();
    ages.sort_unstable();
    ages.dedup();
    let resident = Resident::new(&lowered(&program), &whole, &NoCancel).expect("not cancelled");
    assert!(ages.len() > 300, "{}", ages.len());
    // Blocks of 10 and of 4 bars begin together at every 20th bar.
    assert!(resident.tiles() < 70, "{}", resident.tiles());
    // A classification counts each symbol's bars in its lane, so that all mature symbols may share a tile.
    let (_, program) = classifications().remove(0);
    let whole: Vec<SymbolInput<'_>> = market.iter().map(|bars| input(&program, bars, bars[0].len())).collect();
    let resident = Resident::new(&lowered(&program), &whole, &NoCancel).expect("not cancelled");
    assert!(resident.tiles() < 80, "{}", resident.tiles());
}

#[test]
fn bars_of_another_shape_are_refused_and_change_nothing() {
    let program = program(&["ema(close, 5)".to_owned()]);
    let market = market(3, 50, &mut Random(5));
    let whole: Vec<SymbolInput<'_>> = market.iter().map(|bars| input(&program, bars, bars[0].len())).collect();
    let mut resident = Resident::new(&lowered(&program), &whole, &NoCancel).expect("not cancelled");
    let before = resident.value(1, 0);
    let (two, three) = ([1.0, 2.0], [1.0, 2.0, 3.0]);
    assert_eq!(resident.push(&[], None), Err(ResidentError::Columns { found: 0, expected: 1 }));
    assert_eq!(resident.push(&[&two], None), Err(ResidentError::Symbols { found: 2, expected: 3 }));
    let present = [true, false];
    assert_eq!(resident.push(&[&three], Some(&present)), Err(ResidentError::Symbols { found: 2, expected: 3 }));
    assert_eq!(resident.value(1, 0).to_bits(), before.to_bits());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn random_plans_are_updated_with_the_bits_of_the_whole_history(
        where_ in condition(3),
        value in number(3),
        market in prop::collection::vec(bars(400), 1..24),
        seed in any::<u64>(),
    ) {
        let document = ScanDocument { condition: where_, rank: Some(value.clone()), select: vec![value], ..ScanDocument::default() };
        let plan = compile_scan(&document, &schema()).map_err(|d| TestCaseError::fail(d[0].to_string()))?;
        prop_assert_eq!(differs(plan.program(), &market, &mut Random(seed | 1)), None);
    }
}
