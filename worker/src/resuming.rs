//! Runs a piece resumed from checkpoints, for each symbol whose past is unchanged.

use std::borrow::Cow;

use trawl_kernels::{Cancel, Cancelled, Resuming, State, SymbolInput};

use crate::checkpoints::{Checkpoint, Checkpoints, Digests, OPEN_BARS, Outcome};
use crate::stage_run::{Computed, StageRun};

/// One symbol, ready to be evaluated.
struct Ready<'a> {
    columns: Vec<Cow<'a, [f64]>>,
    state: Option<&'a State>,
    outcome: Outcome,
    save: usize,
    /// Digest of the series that enter the saved state.
    digest: u128,
}

impl StageRun<'_> {
    /// As [`Self::whole`], for piece `p`, which keeps states. Its histories are not limited, so rows are bars.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn whole_resuming(
        &self,
        p: usize,
        wanted: &[usize],
        needed: &[usize],
        computed: &[Vec<Computed>],
        kept: &Checkpoints,
        cancel: &dyn Cancel,
        mine: &mut [Computed],
    ) -> Result<(), Cancelled> {
        let bars = &self.frame(&self.stage.pieces[p]).bars;
        let ready: Vec<Ready<'_>> = wanted.iter().map(|&a| self.ready(p, a, needed[a], computed, kept)).collect();
        let resuming: Vec<Resuming<'_>> = ready
            .iter()
            .zip(wanted)
            .map(|(ready, &a)| {
                let rows = self.axes[a].rows(bars);
                let columns = ready.columns.iter().map(|c| c.get(..rows).unwrap_or_default()).collect();
                let input = SymbolInput { columns, visible: rows };
                Resuming { input, from: needed[a], state: ready.state, save: Some(ready.save) }
            })
            .collect();
        let results = self.executables[p].evaluate_resuming(&resuming, cancel)?;
        for ((result, ready), &a) in results.into_iter().zip(&ready).zip(wanted) {
            let kept_now = result.state.map(|state| Checkpoint { digest: ready.digest, state });
            // A state of the wrong size was not used.
            let outcome =
                if ready.outcome == Outcome::Resumed && !result.resumed { Outcome::New } else { ready.outcome };
            kept.keep(self.number, p, &self.axes[a].bars.symbol, outcome, kept_now);
            mine[a] = Computed::alone(needed[a], result.series);
        }
        Ok(())
    }

    fn ready<'b>(
        &'b self,
        p: usize,
        a: usize,
        needed: usize,
        computed: &[Vec<Computed>],
        kept: &'b Checkpoints,
    ) -> Ready<'b> {
        let (frame, executable) = (self.frame(&self.stage.pieces[p]), &self.executables[p]);
        let inputs = || executable.inputs.iter().zip(executable.carried_inputs());
        // The digest covers the inputs from the first bar on, including bars that are not computed.
        let mut entering: Vec<Option<Cow<'_, [f64]>>> =
            inputs().map(|(input, enters)| enters.then(|| self.input(frame, a, input, (0, 0), computed))).collect();
        let known = kept.of(self.number, p, &self.axes[a].bars.symbol);
        let mut digests = Digests::new(entering.iter().flatten().map(|series| &**series));
        let (state, outcome) = match known {
            None => (None, Outcome::New),
            Some(known) if known.state.bars > needed => (None, Outcome::Earlier),
            Some(known) if known.digest != digests.of(known.state.bars) => (None, Outcome::Changed),
            Some(known) => (Some(&known.state), Outcome::Resumed),
        };
        let save = needed.saturating_sub(OPEN_BARS).max(known.map_or(0, |known| known.state.bars.min(needed)));
        let digest = digests.of(save);
        let begins = match state {
            Some(state) => executable.resumed_begins(state.bars),
            None => executable.input_begins(needed),
        };
        let columns = executable.inputs.iter().zip(&mut entering).zip(begins);
        let columns = columns
            .map(|((input, entering), begin)| {
                entering.take().unwrap_or_else(|| self.input(frame, a, input, (0, begin), computed))
            })
            .collect();
        Ready { columns, state, outcome, save, digest }
    }
}
