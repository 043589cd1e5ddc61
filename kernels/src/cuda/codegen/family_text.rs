//! Kernel text of families of averages: one ring per series with look-back, and the averages of a signal.

use std::fmt::Write as _;

use crate::cuda::codegen::averages::Means;
use crate::cuda::codegen::part_text::{Body, Shared};
use crate::cuda::codegen::ring_slots::RingSlots;
use crate::cuda::codegen::statement::{Statement, When};
use crate::cuda::codegen::step_abi::{Form, Takes};
use crate::cuda::codegen::steps::StepInput;
use crate::cuda::codegen::text::Writer;
use crate::cuda::codegen::warp_partition::WarpPart;

impl Writer<'_> {
    /// Assigns rings to series that families look back at: one per series, filled by a part of a lower level than all
    /// readers, if there is one.
    pub(crate) fn share(&mut self) {
        let parts = self.parts;
        let mut found: Vec<(StepInput, usize, usize, usize)> = Vec::new();
        for part in &parts.parts {
            for at in part.first..part.end {
                let (form, source) = (&self.forms[at], self.steps.steps[at].inputs.first());
                let (Some(_), Takes::Past(bars), Some(source)) = (&form.means, form.takes, source) else { continue };
                let level = part.level;
                match found.iter_mut().find(|(known, ..)| known == source) {
                    Some((_, most, low, high)) => {
                        (*most, *low, *high) = ((*most).max(bars), (*low).min(level), (*high).max(level));
                    }
                    None => found.push((*source, bars, level, level)),
                }
            }
        }
        for (source, bars, low, high) in found {
            let below = |part: &WarpPart| match source {
                StepInput::Step(step) => part.holds(step),
                _ => part.level < low,
            };
            let Some(writer) = parts.parts.iter().position(below) else { continue };
            // The filling part is ahead by its own tile and one tile per level in between.
            let more = (high - parts.parts[writer].level + 1) * self.tile;
            // If lengths are arguments, the text must not depend on them.
            let constant = self.forms.iter().any(Form::has_constant_lengths);
            let ring = self.ring(RingSlots::Rows { slots: bars.saturating_add(1), more, each: 2 }, constant, false);
            self.pasts.push(Shared { source, writer, ring });
        }
    }

    /// Generates code that fills the shared rings of this part.
    pub(crate) fn fill(&mut self, number: usize, part: &WarpPart, body: &mut Body) {
        for (at, past) in self.pasts.clone().into_iter().enumerate().filter(|(_, past)| past.writer == number) {
            let value = self.value(part, past.source, When::Every, body);
            let _ = writeln!(body.states, "History w{at};\nconst Ring q{at} = {};", self.ring_of(past.ring));
            let _ = writeln!(body.starts, "w{at}.start(0);");
            body.push(When::Every, Statement::fixed(format!("w{at}.push_twice(defined((real){value}), q{at});")));
        }
    }

    /// The arguments of a family's signal: price, return, bar number, and the averages, whose code is generated here.
    pub(crate) fn means(&mut self, part: &WarpPart, at: usize, means: &Means, body: &mut Body) -> Vec<String> {
        let inputs = self.steps.steps[at].inputs.clone();
        let mut given: Vec<String> =
            inputs[1..].iter().map(|input| self.value(part, *input, When::Every, body)).collect();
        let x = match means.past {
            None => self.value(part, inputs[0], When::Every, body),
            Some(bars) => {
                let shared = self.pasts.iter().find(|past| past.source == inputs[0]).map(|past| past.ring);
                let forward = match shared {
                    Some(_) => format!("g{at}.follow(r{at});"),
                    None => {
                        let value = self.value(part, inputs[0], When::Every, body);
                        format!("g{at}.push_twice(defined((real){value}), r{at});")
                    }
                };
                let own = RingSlots::Rows { slots: bars.saturating_add(1), more: 0, each: 2 };
                let ring = shared.unwrap_or_else(|| self.ring(own, means.constant, false));
                let _ = writeln!(body.states, "History g{at};\nconst Ring r{at} = {};", self.ring_of(ring));
                let _ = writeln!(body.starts, "g{at}.start(0);");
                body.push(When::Every, Statement::fixed(forward));
                format!("Past{{r{at}, g{at}.now, t}}")
            }
        };
        let (ints, doubles) = (self.values.ints.len(), self.values.doubles.len());
        self.values.ints.extend(&means.ints);
        self.values.doubles.extend(&means.doubles);
        let number = given.last().cloned().unwrap_or_default();
        let mut arguments = vec![x, number, format!("a.p + {ints}"), format!("a.f + {doubles}")];
        if let Some(slots) = means.ring {
            let ring = self.ring(slots, means.constant, false);
            arguments.push(self.ring_of(ring));
        }
        arguments.push(format!("n{at}"));
        let _ = writeln!(body.states, "{} m{at};", means.name);
        let _ = writeln!(body.starts, "m{at}.start();");
        let text = format!("real n{at}[{}];\nm{at}.next({});", means.places.len(), arguments.join(", "));
        body.push(When::Every, Statement::fixed(text));
        given.extend(means.places.iter().map(|place| format!("n{at}[{place}]")));
        given
    }
}
