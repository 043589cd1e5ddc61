//! States of a program that each new bar reaches by the fastest way: sequentially, by threads, or on a device.
//!
//! The CPU's states are always kept, so that no bar is lost with a device: bars that one side has not seen wait in order, and
//! that side is brought up to the other before it is used. [`RoutedStates::catch_up`] does so between bars, when nobody waits.

use std::sync::Arc;
use std::time::Instant;

use crate::cuda::{DeviceStates, Executor, Fault, Fleet, NewBar};
use crate::routing::{Route, Router, Routing};
use crate::{Cancel, Cancelled, Engine, Executable, Resident, ResidentError, SymbolInput};

/// Bars that the CPU's states may be behind a device's, or these behind the CPU's: then a push waits until they are brought up.
pub const BARS_BEHIND_MAX: usize = 64;

/// States on one device of a fleet.
struct OnDevice {
    fleet: Arc<Fleet>,
    /// Index of its executor.
    executor: usize,
    states: DeviceStates,
}

impl OnDevice {
    fn executor(&self) -> &Executor {
        &self.fleet.executors()[self.executor]
    }
}

/// The state of a program over many symbols, as of the last bar of each. Its values are those of [`Resident`], bit for bit,
/// by whichever way they are computed and whatever becomes of a device.
pub struct RoutedStates {
    cpu: Resident,
    device: Option<OnDevice>,
    /// Why there is no device, or not any more.
    without_device: Option<String>,
    router: Router,
    only: Option<Route>,
    /// The bars that a side lacks, the oldest first: the last so many of the CPU's and of the device's.
    log: Vec<NewBar>,
    cpu_lacks: usize,
    device_lacks: usize,
}

impl RoutedStates {
    /// Runs the program in `f64` over the visible bars of `symbols`, on the threads of the current rayon pool and on the
    /// first device of the engine that takes it, and keeps the states.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn new(
        executable: &Executable,
        symbols: &[SymbolInput<'_>],
        engine: &Engine,
        cancel: &dyn Cancel,
    ) -> Result<Self, Cancelled> {
        let cpu = Resident::new(executable, symbols, cancel)?;
        let (device, without_device) = match engine {
            Engine::Cpu => (None, Some("the CPU was asked for".to_owned())),
            Engine::Device(fleet) | Engine::Chunks(fleet) => match on_device(fleet, executable, symbols, cancel) {
                Ok(device) => (Some(device), None),
                Err(Fault::Cancelled) => return Err(Cancelled),
                Err(fault) => (None, Some(fault.to_string())),
            },
        };
        Ok(Self {
            cpu,
            device,
            without_device,
            router: Router::default(),
            only: None,
            log: Vec::new(),
            cpu_lacks: 0,
            device_lacks: 0,
        })
    }

    /// Takes one route from now on, as long as it is open; `None`: the fastest.
    pub fn take_only(&mut self, route: Option<Route>) {
        self.only = route;
    }

    /// Adds one bar to every symbol whose `present` flag is set (`None`: to all symbols): `columns[input][symbol]`, inputs in the
    /// order of the program, NaN for NA. The other symbols keep their values. Returns the route by which the bar was computed.
    ///
    /// A device that fails is not used again: the CPU computes the bar.
    ///
    /// # Errors
    /// [`ResidentError`]; the state is then unchanged.
    pub fn push(&mut self, columns: &[&[f64]], present: Option<&[bool]>) -> Result<Route, ResidentError> {
        self.cpu.check(columns, present)?;
        let route = self.route();
        if self.device.is_none() {
            return self.push_to_cpu(route, columns, present);
        }
        if self.cpu_lacks >= BARS_BEHIND_MAX {
            self.timed_catch_up(Self::catch_up_cpu);
        }
        if self.device_lacks >= BARS_BEHIND_MAX {
            self.timed_catch_up(Self::catch_up_device);
        }
        if route == Route::Device {
            self.timed_catch_up(Self::catch_up_device);
        } else {
            self.timed_catch_up(Self::catch_up_cpu);
        }
        let begun = Instant::now();
        let bar = NewBar { columns: columns.iter().map(|c| c.to_vec()).collect(), present: present.map(<[_]>::to_vec) };
        self.log.push(bar);
        (self.cpu_lacks, self.device_lacks) = (self.cpu_lacks + 1, self.device_lacks + 1);
        if route == Route::Device {
            self.catch_up_device();
            if self.device.is_some() {
                self.router.took(route, begun.elapsed().as_secs_f64());
                return Ok(route);
            }
        }
        if route == Route::Device {
            // It has just failed: the CPU takes all that it lacks.
            self.timed_catch_up(Self::catch_up_cpu);
            return Ok(Route::Threads);
        }
        self.catch_up_cpu_by(route);
        self.router.took(route, begun.elapsed().as_secs_f64());
        Ok(route)
    }

    /// Brings the states that are behind up to the others: to be called between bars, when nobody waits for values.
    pub fn catch_up(&mut self) {
        self.catch_up_cpu();
        self.catch_up_device();
    }

    /// The value of an output at a symbol's last bar; NaN for a symbol without bars.
    pub fn value(&self, symbol: usize, output: usize) -> f64 {
        match &self.device {
            Some(device) if self.cpu_lacks > 0 => device.states.value(symbol, output),
            _ => self.cpu.value(symbol, output),
        }
    }

    /// Number of outputs per symbol.
    pub fn outputs(&self) -> usize {
        self.cpu.outputs()
    }

    /// Number of bars seen by a symbol.
    pub fn bars(&self, symbol: usize) -> usize {
        match &self.device {
            Some(device) if self.cpu_lacks > 0 => device.states.bars(symbol),
            _ => self.cpu.bars(symbol),
        }
    }

    /// Which ways bars took, what each takes, and the regret against the best one.
    pub fn routing(&self) -> Routing {
        self.router.routing()
    }

    /// Why no device is used; `None` while one is.
    pub fn without_device(&self) -> Option<&str> {
        self.without_device.as_deref()
    }

    /// Bars that the CPU's states are behind.
    pub fn bars_behind(&self) -> usize {
        self.cpu_lacks
    }

    fn route(&mut self) -> Route {
        if let Some(device) = &self.device
            && let Some(why) = device.executor().lost()
        {
            let fault = Fault::Lost(why.to_owned());
            self.give_up(&fault);
        }
        let is_open = |route: Route| route != Route::Device || self.device.is_some();
        if let Some(only) = self.only.filter(|only| is_open(*only)) {
            return only;
        }
        let is_ready = |route: Route| if route == Route::Device { self.device_lacks == 0 } else { self.cpu_lacks == 0 };
        self.router.choose(is_open, is_ready)
    }

    fn push_to_cpu(
        &mut self,
        route: Route,
        columns: &[&[f64]],
        present: Option<&[bool]>,
    ) -> Result<Route, ResidentError> {
        self.timed_catch_up(Self::catch_up_cpu);
        let begun = Instant::now();
        match route {
            Route::Sequential => self.cpu.push_sequentially(columns, present)?,
            Route::Threads | Route::Device => self.cpu.push(columns, present)?,
        }
        self.router.took(route, begun.elapsed().as_secs_f64());
        Ok(route)
    }

    fn timed_catch_up(&mut self, work: impl FnOnce(&mut Self)) {
        let begun = Instant::now();
        let behind = (self.cpu_lacks, self.device_lacks);
        work(self);
        if behind != (self.cpu_lacks, self.device_lacks) {
            self.router.brought_up(begun.elapsed().as_secs_f64());
        }
    }

    fn catch_up_cpu(&mut self) {
        self.catch_up_cpu_by(Route::Threads);
    }

    fn catch_up_cpu_by(&mut self, route: Route) {
        let lacking = &self.log[self.log.len() - self.cpu_lacks..];
        for bar in lacking {
            let columns: Vec<&[f64]> = bar.columns.iter().map(Vec::as_slice).collect();
            let present = bar.present.as_deref();
            // The shape was checked when the bar came.
            let _ = match route {
                Route::Sequential => self.cpu.push_sequentially(&columns, present),
                Route::Threads | Route::Device => self.cpu.push(&columns, present),
            };
        }
        self.cpu_lacks = 0;
        self.forget();
    }

    fn catch_up_device(&mut self) {
        let Some(device) = &mut self.device else { return };
        let lacking = &self.log[self.log.len() - self.device_lacks..];
        if lacking.is_empty() {
            return;
        }
        let executor = &device.fleet.executors()[device.executor];
        match executor.push(&mut device.states, lacking) {
            Ok(()) => {
                self.device_lacks = 0;
                self.forget();
            }
            Err(fault) => self.give_up(&fault),
        }
    }

    /// Continues without the device. The bars that the CPU lacks are still there.
    fn give_up(&mut self, fault: &Fault) {
        self.without_device = Some(fault.to_string());
        self.device = None;
        self.device_lacks = 0;
        self.router.close(Route::Device);
        self.forget();
    }

    /// Drops the bars that both sides have seen.
    fn forget(&mut self) {
        let kept = self.cpu_lacks.max(self.device_lacks);
        self.log.drain(..self.log.len() - kept);
    }
}

fn on_device(
    fleet: &Arc<Fleet>,
    executable: &Executable,
    symbols: &[SymbolInput<'_>],
    cancel: &dyn Cancel,
) -> Result<OnDevice, Fault> {
    let mut last = Fault::Failed("there is no device".to_owned());
    for (at, executor) in fleet.executors().iter().enumerate() {
        match executor.states(executable, symbols, cancel) {
            Ok(states) => return Ok(OnDevice { fleet: Arc::clone(fleet), executor: at, states }),
            Err(Fault::Cancelled) => return Err(Fault::Cancelled),
            Err(fault) => last = fault,
        }
    }
    Err(last)
}
