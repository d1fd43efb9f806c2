//! What the agent asks, and which lane does it.

use std::collections::btree_map::Entry;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::child;
use crate::health::dir::{DirId, path_text};
use crate::probe::wire::{Request, VERSION, role_of};

use super::super::lane::{Job, Lane, LaneKey};
use super::super::look::trouble;
use super::watched::{Outstanding, Question, Settings, Watched};
use super::{Control, Message};

impl Control {
    pub(super) fn serve(&mut self, request: Request) -> io::Result<()> {
        match request {
            Request::Greeting {
                version,
                lock_memory,
            } => greeted(version, lock_memory),
            Request::Watch {
                dir,
                path,
                role,
                await_cookie,
                require_mount,
                pinned,
            } => {
                let settings = Settings {
                    role: role_of(role),
                    await_cookie,
                    require_mount,
                };
                self.watch(DirId(dir), path.into(), settings, pinned.map(PathBuf::from))
            }
            Request::Unwatch { dir } => {
                self.dirs.remove(&DirId(dir));
                self.drop_idle_lanes();
                self.below_changed = true;
                Ok(())
            }
            Request::Resolve { dir } => {
                if let Some(watched) = self.dirs.get_mut(&DirId(dir)) {
                    watched.pinned = None;
                }
                Ok(())
            }
            Request::Look {
                dir,
                kind,
                expected,
                ballast,
            } => {
                let asked = Question {
                    kind,
                    expected,
                    ballast: ballast.into(),
                };
                self.look(DirId(dir), asked)
            }
        }
    }

    fn watch(
        &mut self,
        dir: DirId,
        path: PathBuf,
        settings: Settings,
        pinned: Option<PathBuf>,
    ) -> io::Result<()> {
        match self.dirs.get_mut(&dir) {
            Some(watched) if watched.path == path => watched.settings = settings,
            _ => drop(self.dirs.insert(dir, Watched::new(path, settings, pinned))),
        }
        self.report_mount(dir)
    }

    /// A second request for a directory that is being looked at counts if it asks for more; then
    /// it takes the place of the first.
    fn look(&mut self, dir: DirId, asked: Question) -> io::Result<()> {
        match self.dirs.get(&dir) {
            Some(watched) if watched.look.is_none_or(|look| look.asked.kind < asked.kind) => {
                self.hand_out(dir, asked)
            }
            _ => Ok(()),
        }
    }

    /// Gives a look to the lane that the directory belongs to now.
    pub(super) fn hand_out(&mut self, dir: DirId, asked: Question) -> io::Result<()> {
        let Some(watched) = self.dirs.get_mut(&dir) else {
            return Ok(());
        };
        self.last_token += 1;
        let token = self.last_token;
        let lane = watched.lane(dir);
        watched.look = Some(Outstanding { token, asked, lane });
        watched.held = None;
        let (task, stack) = (watched.task(asked), Arc::clone(&watched.stack));
        match self.lane(lane) {
            Ok(lane) => {
                lane.stack = stack;
                lane.give(Job { token, dir, task });
                Ok(())
            }
            Err(error) => {
                let detail = format!("no thread for {}: {error}", path_text(&task.path));
                let found = trouble(&detail, error.raw_os_error());
                self.looked(dir, found)
            }
        }
    }

    fn lane(&mut self, key: LaneKey) -> io::Result<&mut Lane> {
        match self.lanes.entry(key) {
            Entry::Occupied(lane) => Ok(lane.into_mut()),
            Entry::Vacant(vacant) => {
                let (tell, bell) = (self.sender.clone(), Arc::clone(&self.wake));
                let lane = Lane::start(key, &self.time, &self.tools, move |done, at_once| {
                    let _ = tell.send(Message::Done(done));
                    if at_once {
                        let _ = bell.write(1);
                    }
                })?;
                Ok(vacant.insert(lane))
            }
        }
    }
}

fn greeted(version: u32, lock_memory: bool) -> io::Result<()> {
    if version != VERSION {
        return Err(io::Error::other("the agent speaks another version"));
    }
    if lock_memory {
        // The agent does the same, and reports what keeps both from it.
        let _ = child::lock_memory();
    }
    Ok(())
}
