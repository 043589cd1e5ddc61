//! The time of a bar by the exchange's clock, and prices of its session. They are written without parentheses.

use super::*;

const GROUP: &str = "Time and sessions";

/// The most minutes of an opening range: one day.
const DAY_MINUTES: u32 = 1440;

pub(super) const LIST: &[Function] = &[
    declare("minutes_since_open", GROUP)
        .summary("minutes from the open of the session to this bar")
        .formula("time at which the bar begins - open of its regular session; NA outside of regular sessions")
        .reference(Reference::Language)
        .written_bare()
        .of_clock(Clock::SinceOpen)
        .scaling(Scaling::PURE)
        .number(|f| f.clock(Clock::SinceOpen)),
    declare("minutes_to_close", GROUP)
        .summary("minutes from this bar to the close of the session")
        .formula("close of the bar's regular session - time at which the bar begins; NA outside of regular sessions")
        .reference(Reference::Language)
        .written_bare()
        .of_clock(Clock::ToClose)
        .scaling(Scaling::PURE)
        .number(|f| f.clock(Clock::ToClose)),
    declare("session_bar", GROUP)
        .summary("number of the bar in its session: 1 for the first one")
        .formula("how many of the symbol's bars of the regular session have begun; NA outside of regular sessions")
        .reference(Reference::Language)
        .written_bare()
        .of_clock(Clock::SinceOpen)
        .scaling(Scaling::PURE)
        .number(|f| {
            let in_session = f.clock(Clock::SinceOpen);
            (f.begins(Period::Session).as_number().step(Op::Since) + 1.0).where_finite(in_session)
        }),
    declare("time_of_day", GROUP)
        .summary("time at which the bar begins, in minutes since midnight on the exchange's clock")
        .formula("hours*60 + minutes; compared with a time as text: time_of_day < '10:30'")
        .reference(Reference::Language)
        .written_bare()
        .of_clock(Clock::TimeOfDay)
        .scaling(Scaling::PURE)
        .number(|f| f.clock(Clock::TimeOfDay)),
    declare("weekday", GROUP)
        .summary("day of the week of the trading day: 1 for Monday to 7 for Sunday")
        .formula("of the bar's trading day, to which early and late trading belong; compared with a day's name: weekday == 'friday'")
        .reference(Reference::Language)
        .written_bare()
        .of_clock(Clock::Weekday)
        .scaling(Scaling::PURE)
        .number(|f| f.clock(Clock::Weekday)),
    declare("month", GROUP)
        .summary("month of the trading day: 1 to 12")
        .formula("of the bar's trading day; compared with a month's name: month == 'january'")
        .reference(Reference::Language)
        .written_bare()
        .of_clock(Clock::Month)
        .scaling(Scaling::PURE)
        .number(|f| f.clock(Clock::Month)),
    declare("session", GROUP)
        .summary("prices of the session so far")
        .formula(
            "of the regular session of the bar's trading day: open of its first bar, highest high and lowest low up to this bar; \
             NA before it opens",
        )
        .reference(Reference::Language)
        .written_bare()
        .series(&[OPEN, HIGH, LOW])
        .outputs(&[output("open", &[]), output("high", &[]), output("low", &[])])
        .numbers(|f| {
            let [open, high, low] = f.series();
            let (is_today, [open, high, low, _]) = last_session(f, [open, high, low, open]);
            [open, high, low].map(|x| is_today.choose(x, f64::NAN)).to_vec()
        }),
    declare("prev_session", GROUP)
        .summary("prices of the session before")
        .formula(
            "of the last regular session before the bar's trading day in which the symbol had bars: open, highest high, lowest low, \
             close",
        )
        .reference(Reference::Language)
        .written_bare()
        .series(&[OPEN, HIGH, LOW, CLOSE])
        .outputs(&[output("open", &[]), output("high", &[]), output("low", &[]), output("close", &[])])
        .numbers(|f| {
            let day = f.begins(Period::Day).as_number();
            let (_, before) = last_session(f, f.series());
            before.map(|x| f.step(Op::ValueWhen, &[day, x.lag(1)])).to_vec()
        }),
    declare("opening_range", GROUP)
        .summary("highest and lowest price of the first minutes of the session")
        .formula(
            "highest high and lowest low of the bars that begin less than n minutes after the open; NA until a bar of the session \
             begins n minutes after it or later",
        )
        .reference(Reference::Language)
        .of_clock(Clock::SinceOpen)
        .series(&[HIGH, LOW])
        .params(&[Param {
            name: "n",
            kind: ParamType::Integer { min: 1, max: DAY_MINUTES },
            default: ParamDefault::Required,
        }])
        .outputs(&[output("high", &[]), output("low", &[])])
        .numbers(|f| {
            let ([high, low], day) = (f.series(), f.begins(Period::Day).as_number());
            let minutes = f.clock(Clock::SinceOpen);
            let is_early = minutes.below(f.bars(0));
            let over = f.condition_of(Op::EverSince, &[day, minutes.at_least(f.bars(0)).as_number()]);
            [(high, Op::MaxSince), (low, Op::MinSince)]
                .map(|(x, extreme)| {
                    let range = f.step(extreme, &[day, is_early.choose(x, f64::NAN)]);
                    over.choose(range, f64::NAN)
                })
                .to_vec()
        }),
];

/// Bars of the symbol's last regular session that has begun: whether it is the one of the bar's trading day, and its open, highest
/// high, lowest low and last close up to the bar.
fn last_session<'f>(f: &'f Formula, [open, high, low, close]: [Num<'f>; 4]) -> (Truth<'f>, [Num<'f>; 4]) {
    let (day, inside) = (f.begins(Period::Day), f.in_session());
    let seen = f.condition_of(Op::EverSince, &[day.as_number(), inside.as_number()]);
    let first = inside & (day | !seen.lag(1));
    // Early and late trading is part of no session.
    let within = |extreme, x| f.step(extreme, &[first.as_number(), inside.choose(x, f64::NAN)]);
    let held = |when: Truth<'f>, x| f.step(Op::ValueWhen, &[when.as_number(), x]);
    (seen, [held(first, open), within(Op::MaxSince, high), within(Op::MinSince, low), held(inside, close)])
}
