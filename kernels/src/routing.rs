//! Which way new bars are computed, by what each way took: sequentially, by threads, or on a device. Pure: times are given.
//!
//! The way with the least median of its last times is taken. Others are tried at first, and later as long as what that costs
//! stays below a share of all time, since a machine's load changes. Bits do not depend on the way.

/// A way to compute new bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// On the calling thread.
    Sequential,
    /// On the threads of the current rayon pool.
    Threads,
    /// On a device.
    Device,
}

impl Route {
    /// Every route.
    pub const ALL: [Self; 3] = [Self::Sequential, Self::Threads, Self::Device];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Threads => "threads",
            Self::Device => "device",
        }
    }

    fn index(self) -> usize {
        Self::ALL.iter().position(|route| *route == self).unwrap_or(0)
    }
}

/// Times of a route that are kept: its median is that of the last ones.
const TIMES_KEPT: usize = 9;
/// Times that each route is tried at first.
const FIRST_TRIES: u64 = 3;
/// Least number of pushes between two tries of a route that is not the best one.
const TRY_EVERY: u64 = 64;
/// Share of all time, one in so many, that later tries of a route may cost beyond the best route's time.
const TRY_COST_SHARE: f64 = 128.0;

#[derive(Debug, Clone, Default)]
struct Times {
    /// In seconds, the oldest first.
    last: Vec<f64>,
    pushes: u64,
    /// The push of its last time.
    tried_at: u64,
    /// What tries took beyond the best route's time, in seconds.
    tries_seconds: f64,
}

impl Times {
    fn median(&self) -> Option<f64> {
        let mut sorted = self.last.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

/// Chooses among routes.
#[derive(Debug, Clone, Default)]
pub struct Router {
    times: [Times; 3],
    pushes: u64,
    /// Of all pushes.
    seconds: f64,
    /// Time that went into states that were behind.
    behind_seconds: f64,
}

/// What a route was used for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouteUse {
    /// The route.
    pub route: Route,
    /// Pushes by it.
    pub pushes: u64,
    /// Median of its last times, in seconds; `None` before it was used.
    pub median_seconds: Option<f64>,
}

/// How pushes were routed.
#[derive(Debug, Clone, PartialEq)]
pub struct Routing {
    /// Each route.
    pub routes: Vec<RouteUse>,
    /// The one whose median is the least; `None` before the first push.
    pub best: Option<Route>,
    /// Pushes, and their time in seconds.
    pub pushes: u64,
    /// Their time in seconds, without `behind_seconds`.
    pub seconds: f64,
    /// Time in seconds by which states that were behind were brought up to the others.
    pub behind_seconds: f64,
    /// How much longer all pushes took than if each had taken the best route's median: 0.02 is two percent.
    pub regret: f64,
}

impl Router {
    /// The route of the next push. `is_open`: whether a route can be taken at all; `is_ready`: whether without bringing states up first.
    pub fn choose(&self, is_open: impl Fn(Route) -> bool, is_ready: impl Fn(Route) -> bool) -> Route {
        let open: Vec<Route> = Route::ALL.into_iter().filter(|route| is_open(*route)).collect();
        let new = open.iter().filter(|route| self.times[route.index()].pushes < FIRST_TRIES);
        if let Some(route) = new.min_by_key(|route| self.times[route.index()].pushes) {
            return *route;
        }
        let Some(best) = self.best_of(&open) else { return Route::Sequential };
        let least = self.median(best);
        let others = open.into_iter().filter(|route| *route != best && is_ready(*route));
        let is_due = |route: &Route| {
            let times = &self.times[route.index()];
            // Faster than the best one the last time: it is tried again until its median says so, or it is not.
            if times.last.last().is_some_and(|last| *last < least) {
                return true;
            }
            let more = self.median(*route) - least;
            self.pushes - times.tried_at >= TRY_EVERY && (times.tries_seconds + more) * TRY_COST_SHARE <= self.seconds
        };
        others.filter(is_due).min_by_key(|route| self.times[route.index()].tried_at).unwrap_or(best)
    }

    /// A push took so many seconds by this route.
    pub fn took(&mut self, route: Route, seconds: f64) {
        let is_first = self.times[route.index()].pushes < FIRST_TRIES;
        if let Some(best) = self.best_of(&Route::ALL)
            && best != route
            && !is_first
        {
            let more = (seconds - self.median(best)).max(0.0);
            self.times[route.index()].tries_seconds += more;
        }
        self.pushes += 1;
        self.seconds += seconds;
        let times = &mut self.times[route.index()];
        (times.pushes, times.tried_at) = (times.pushes + 1, self.pushes);
        if times.last.len() == TIMES_KEPT {
            times.last.remove(0);
        }
        times.last.push(seconds);
    }

    /// So many seconds went into states that were behind.
    pub fn brought_up(&mut self, seconds: f64) {
        self.behind_seconds += seconds;
    }

    /// What a route that is gone took is not compared with any more.
    pub fn close(&mut self, route: Route) {
        self.times[route.index()].last.clear();
    }

    /// How pushes were routed so far.
    pub fn routing(&self) -> Routing {
        let of = |route: Route| {
            let times = &self.times[route.index()];
            RouteUse { route, pushes: times.pushes, median_seconds: times.median() }
        };
        let best = self.best_of(&Route::ALL);
        let least = best.map_or(0.0, |best| self.median(best) * self.pushes as f64);
        Routing {
            routes: Route::ALL.map(of).to_vec(),
            best,
            pushes: self.pushes,
            seconds: self.seconds,
            behind_seconds: self.behind_seconds,
            regret: if least > 0.0 { self.seconds / least - 1.0 } else { 0.0 },
        }
    }

    fn median(&self, route: Route) -> f64 {
        self.times[route.index()].median().unwrap_or(f64::INFINITY)
    }

    fn best_of(&self, routes: &[Route]) -> Option<Route> {
        let used = routes.iter().copied().filter(|route| !self.times[route.index()].last.is_empty());
        used.min_by(|a, b| self.median(*a).total_cmp(&self.median(*b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes with these times of the routes; how often each was taken.
    fn run(router: &mut Router, pushes: u64, seconds: [f64; 3], open: usize) -> [u64; 3] {
        let mut taken = [0; 3];
        for _ in 0..pushes {
            let route = router.choose(|route| route.index() < open, |_| true);
            assert!(route.index() < open, "{route:?} is not open");
            taken[route.index()] += 1;
            router.took(route, seconds[route.index()]);
        }
        taken
    }

    #[test]
    fn each_route_is_tried_and_then_the_fastest_is_taken() {
        for (best, seconds) in [(0, [1.0, 2.0, 3.0]), (1, [4.0, 2.0, 3.0]), (2, [4.0, 2.0, 0.1])] {
            let mut router = Router::default();
            let taken = run(&mut router, 100, seconds, 3);
            assert!(taken.iter().all(|n| *n >= FIRST_TRIES), "{taken:?}");
            assert!(taken[best] >= 90, "{taken:?}");
            assert_eq!(router.routing().best, Some(Route::ALL[best]));
        }
        let mut router = Router::default();
        assert_eq!(run(&mut router, 100, [4.0, 2.0, 0.1], 2)[2], 0);
    }

    #[test]
    fn a_route_that_becomes_the_fastest_is_found_and_tries_cost_little() {
        let mut router = Router::default();
        run(&mut router, 2_000, [1.0, 2.0, 8.0], 3);
        // The first tries: 1 and 7 more three times each; later ones of two routes a 128th each.
        let all = 2_000.0 + 3.0 * 8.0;
        let Routing { regret, pushes, seconds, .. } = router.routing();
        assert_eq!(pushes, 2_000);
        assert!((seconds / 2_000.0 - 1.0 - regret).abs() < 1e-9, "{regret}");
        assert!(seconds > all && seconds <= all * (1.0 + 2.0 / TRY_COST_SHARE) + 8.0, "{seconds}");
        let mut again = router.clone();
        while run(&mut again, 1, [1.0, 2.0, 0.5], 3)[2] == 0 {}
        let taken = run(&mut again, 50, [1.0, 2.0, 0.5], 3);
        assert!(taken[2] >= 48, "a try that was faster is repeated, beside one of each other route: {taken:?}");
        let taken = run(&mut router, 2_000, [1.0, 2.0, 0.5], 3);
        // A try at the old time costs 7 seconds: after 128 times as many there is one.
        assert!(taken[2] > 2_000 - 7 * 128 - 20, "{taken:?}");
        assert_eq!(router.routing().best, Some(Route::Device));
    }

    #[test]
    fn times_that_vary_cost_little_too() {
        let (mut router, mut state) = (Router::default(), 7u64);
        let mut all = [0.0; 3];
        for _ in 0..5_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Up to twice as long as usual.
            let seconds = [1.0, 1.3, 1.1].map(|usual| usual * (1.0 + (state >> 11) as f64 / (1u64 << 53) as f64));
            all.iter_mut().zip(seconds).for_each(|(all, seconds)| *all += seconds);
            let route = router.choose(|_| true, |_| true);
            router.took(route, seconds[route.index()]);
        }
        let best = all.into_iter().fold(f64::INFINITY, f64::min);
        assert!(router.routing().seconds < best * 1.1, "{} {best}", router.routing().seconds);
    }

    #[test]
    fn a_route_that_is_dear_is_not_tried_again_soon_nor_one_that_is_behind() {
        let mut router = Router::default();
        let taken = run(&mut router, 1_000, [1.0, 1_000.0, 1.5], 3);
        assert_eq!(taken[1], FIRST_TRIES, "{taken:?}");
        assert!(taken[2] > FIRST_TRIES, "{taken:?}");
        let mut router = Router::default();
        for _ in 0..1_000 {
            let route = router.choose(|_| true, |route| route != Route::Device);
            router.took(route, 1.0 + route.index() as f64 / 10.0);
        }
        assert_eq!(router.routing().routes[2].pushes, FIRST_TRIES);
    }

    #[test]
    fn a_route_that_is_gone_is_not_the_best_any_more() {
        let mut router = Router::default();
        run(&mut router, 50, [2.0, 1.0, 0.5], 3);
        router.close(Route::Device);
        assert_eq!(router.routing().best, Some(Route::Threads));
        assert_eq!(run(&mut router, 50, [2.0, 1.0, 0.5], 2)[2], 0);
    }
}
