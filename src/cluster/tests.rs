//! The cluster on the store in memory: what is read, what is refused, and what happens without a session.
