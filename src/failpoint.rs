//! Steps at which a process can die with something done and something not. Tests have it die at each of them, in the
//! process and, by `DIRKEEPER_FAIL_AT` in builds for debugging, for real. Which steps there are is for each room to say.

use std::fmt;
use std::sync::Arc;

/// The steps of a room.
pub trait Step: Copy + Send + Sync + 'static {
    /// As in `DIRKEEPER_FAIL_AT`.
    fn name(self) -> &'static str;
}

/// Whether the process dies there.
type Dies<S> = Arc<dyn Fn(S) -> bool + Send + Sync>;

/// What happens at the steps: nothing, unless somebody wants to see the process die.
#[derive(Clone)]
pub struct Failpoints<S> {
    dies: Option<Dies<S>>,
}

impl<S> fmt::Debug for Failpoints<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Failpoints({})", self.dies.is_some())
    }
}

impl<S> Default for Failpoints<S> {
    fn default() -> Failpoints<S> {
        Failpoints { dies: None }
    }
}

impl<S: Step> Failpoints<S> {
    /// Asks at each step. Where the answer is yes, the work never goes on: whoever asked drops it.
    #[must_use]
    pub fn new(dies: impl Fn(S) -> bool + Send + Sync + 'static) -> Failpoints<S> {
        Failpoints {
            dies: Some(Arc::new(dies)),
        }
    }

    /// A step is reached.
    pub async fn reach(&self, step: S) {
        #[cfg(debug_assertions)]
        if std::env::var_os("DIRKEEPER_FAIL_AT").is_some_and(|name| name == step.name()) {
            std::process::abort();
        }
        if let Some(dies) = &self.dies
            && dies(step)
        {
            std::future::pending::<()>().await;
        }
    }
}
