//! The mount table, `/proc/self/mountinfo`: its lines, and which of them covers a path. Pure: the
//! text comes from `kernel`, facts about the device from `device`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::health::observation::{Device, Medium, Mount};

/// Super-block options by which the kernel says that it gave a file system up.
const EMERGENCY_OPTIONS: [&str; 2] = ["emergency_ro", "shutdown"];

/// The option of a mount, and of a super block.
const READ_ONLY: &str = "ro";

/// The mounts of this name space, in the order of the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Table {
    entries: Vec<Entry>,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: u64,
    parent: u64,
    pub(super) device: Device,
    pub(super) root: PathBuf,
    pub(super) point: PathBuf,
    pub(super) source: String,
    pub(super) fs_type: String,
    pub(super) options: String,
    pub(super) read_only: bool,
    own_read_only: bool,
    pub(super) emergency: Option<String>,
}

impl Table {
    /// Understands the text of the table. A line that cannot be understood is left out: a newer
    /// kernel must not blind us to all others.
    pub(super) fn parse(text: &[u8]) -> Table {
        let lines = text.split(|byte| *byte == b'\n');
        let mut entries: Vec<Entry> = lines.filter_map(Entry::parse).collect();
        // An operator's `ro` is the mount's own as well. btrfs, and ext4 before it had an option for
        // that, set it in the super block alone when they give up.
        let asked: Vec<Device> = entries
            .iter()
            .filter(|entry| entry.own_read_only)
            .map(|entry| entry.device)
            .collect();
        for entry in &mut entries {
            if entry.read_only && entry.emergency.is_none() && !asked.contains(&entry.device) {
                entry.emergency = Some(READ_ONLY.to_owned());
            }
        }
        Table { entries }
    }

    /// Mounts, by their ids, of which it is concluded that the kernel gave their file system up: read-only, and nobody asked.
    pub(super) fn concluded(&self) -> BTreeSet<u64> {
        let by_nobody = |entry: &&Entry| entry.emergency.as_deref() == Some(READ_ONLY);
        let entries = self.entries.iter().filter(by_nobody);
        entries.map(|entry| entry.id).collect()
    }

    /// The mount on which an absolute path without links and dots lies, found as the kernel walks:
    /// from the root, at each step into the first mount that the path meets. So a mount hidden
    /// below a later one does not count. None when the table has no root.
    pub(super) fn covering(&self, path: &Path) -> Option<&Entry> {
        let known = |id: u64| self.entries.iter().any(|entry| entry.id == id);
        let mut here = self.entries.iter().find(|entry| {
            entry.point == Path::new("/") && (entry.parent == entry.id || !known(entry.parent))
        })?;
        // Each turn goes one mount deeper; a table that runs in circles ends here all the same.
        for _ in 0..self.entries.len() {
            let next = self
                .entries
                .iter()
                .filter(|entry| entry.parent == here.id && entry.id != here.id)
                .filter(|entry| path.starts_with(&entry.point))
                .filter(|entry| entry.point.starts_with(&here.point))
                .min_by_key(|entry| entry.point.components().count());
            match next {
                Some(next) => here = next,
                None => break,
            }
        }
        Some(here)
    }
}

impl Entry {
    /// The same with what is known about the medium.
    pub(super) fn to_mount(&self, medium: Medium) -> Mount {
        Mount {
            id: self.id,
            device: self.device,
            root: self.root.clone(),
            point: self.point.clone(),
            source: self.source.clone(),
            fs_type: self.fs_type.clone(),
            options: self.options.clone(),
            read_only: self.read_only,
            emergency: self.emergency.clone(),
            medium,
        }
    }

    /// Nothing has changed since that was made of an entry.
    pub(super) fn is(&self, mount: &Mount) -> bool {
        self.to_mount(mount.medium) == *mount
    }

    fn parse(line: &[u8]) -> Option<Entry> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = number(fields.next()?)?;
        let parent = number(fields.next()?)?;
        let device = device(fields.next()?)?;
        let root = path(fields.next()?);
        let point = path(fields.next()?);
        let own = text(fields.next()?);
        // Optional fields up to a lone hyphen.
        fields.find(|field| *field == b"-")?;
        let fs_type = text(fields.next()?);
        let source = text(fields.next()?);
        let super_block = text(fields.next().unwrap_or_default());
        if !point.is_absolute() {
            return None;
        }
        let words = || own.split(',').chain(super_block.split(','));
        let emergency = words().find(|word| EMERGENCY_OPTIONS.contains(word));
        Some(Entry {
            id,
            parent,
            device,
            root,
            point,
            source,
            fs_type,
            read_only: words().any(|word| word == READ_ONLY),
            own_read_only: own.split(',').any(|word| word == READ_ONLY),
            emergency: emergency.map(str::to_owned),
            options: joined(&own, &super_block),
        })
    }
}

/// The mount's own options, then those of the super block that are not among them.
fn joined(own: &str, super_block: &str) -> String {
    let mut options = own.to_owned();
    for word in super_block.split(',').filter(|word| !word.is_empty()) {
        if !own.split(',').any(|each| each == word) {
            options.push(',');
            options.push_str(word);
        }
    }
    options
}

fn number<Number: std::str::FromStr>(field: &[u8]) -> Option<Number> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn device(field: &[u8]) -> Option<Device> {
    let colon = field.iter().position(|byte| *byte == b':')?;
    Some(Device {
        major: number(&field[..colon])?,
        minor: number(&field[colon + 1..])?,
    })
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescaped(field)))
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescaped(field)).into_owned()
}

/// The kernel writes blanks, line ends and backslashes as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        if let (
            b'\\',
            [
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ],
        ) = (first, tail)
        {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = after;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;
    use crate::mutation::edited;

    const TABLE: &[u8] = b"\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 8:1 / /mnt/l1 rw,noatime shared:2 master:1 - xfs /dev/sda1 rw,attr2
31 30 8:2 / /mnt/l1/deep ro,relatime - ext4 /dev/sda2 rw
32 22 8:3 /sub /mnt/odd\\040name\\134\\011x rw - ext4 /dev/disk\\0401 rw,emergency_ro
33 22 0:40 / /mnt/\xff\xfe rw - tmpfs none ro,size=4k
34 22 8:4 / /mnt/l1 rw - ext4 /dev/sdd rw
";

    fn point_of(path: &str) -> PathBuf {
        let table = Table::parse(TABLE);
        table.covering(Path::new(path)).unwrap().point.clone()
    }

    #[test]
    fn escapes_and_odd_names_are_understood() {
        let table = Table::parse(TABLE);
        assert_eq!(table.entries.len(), 7);
        let odd = table.covering(Path::new("/mnt/odd name\\\tx/a")).unwrap();
        assert_eq!(odd.root, Path::new("/sub"));
        assert_eq!(odd.source, "/dev/disk 1");
        assert_eq!(odd.emergency.as_deref(), Some("emergency_ro"));
        let bytes = Path::new(std::ffi::OsStr::from_bytes(b"/mnt/\xff\xfe"));
        let tmpfs = table.covering(bytes).unwrap();
        assert_eq!(
            tmpfs.device,
            Device {
                major: 0,
                minor: 40
            }
        );
        assert!(tmpfs.read_only, "ro among the super block's options");
        assert_eq!(tmpfs.options, "rw,ro,size=4k");
        assert!(!odd.read_only);
    }

    #[test]
    fn read_only_below_a_mount_that_is_not_was_set_by_the_kernel() {
        let text = b"\
1 1 8:0 / / rw - ext4 a rw
2 1 0:41 / /given-up rw,relatime - btrfs b ro,ssd
3 1 8:2 / /asked ro - ext4 c ro
4 1 8:2 /part /part-of-it rw - ext4 c ro
";
        let table = Table::parse(text);
        let emergency = |path: &str| {
            let entry = table.covering(Path::new(path)).unwrap();
            (entry.read_only, entry.emergency.as_deref())
        };
        assert_eq!(emergency("/given-up"), (true, Some("ro")));
        assert_eq!(emergency("/asked"), (true, None));
        assert_eq!(emergency("/part-of-it"), (true, None));
    }

    #[test]
    fn a_path_is_covered_by_the_mount_that_a_walk_from_the_root_ends_on() {
        assert_eq!(point_of("/var/lib"), Path::new("/"));
        assert_eq!(point_of("/proc/self"), Path::new("/proc"));
        assert_eq!(
            point_of("/mnt/l10"),
            Path::new("/"),
            "a prefix of text is no prefix of path"
        );
        assert_eq!(point_of("/mnt/l1/deep/er"), Path::new("/mnt/l1/deep"));
        let table = Table::parse(TABLE);
        let deep = table.covering(Path::new("/mnt/l1/deep")).unwrap();
        assert!(deep.read_only, "ro among the mount's own options");
    }

    #[test]
    fn a_mount_over_another_hides_it_and_all_below() {
        let text = b"\
1 1 8:0 / / rw - ext4 a rw
2 1 8:1 / /m rw - ext4 b rw
3 2 8:2 / /m/x rw - ext4 c rw
4 2 8:3 / /m rw - ext4 d rw
";
        let table = Table::parse(text);
        assert_eq!(table.covering(Path::new("/m/x/y")).unwrap().id, 4);
        assert_eq!(table.covering(Path::new("/m")).unwrap().id, 4);
    }

    #[test]
    fn an_empty_or_strange_table_covers_nothing() {
        assert_eq!(Table::parse(b"").covering(Path::new("/")), None);
        let circle = b"1 2 8:0 / / rw - a a rw\n2 1 8:0 / / rw - a a rw\n";
        assert_eq!(Table::parse(circle).covering(Path::new("/")), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes: Vec<u8>, path: String) {
            let _ = Table::parse(&bytes).covering(Path::new(&path));
        }

        #[test]
        fn no_line_that_looks_like_one_makes_the_parser_panic(
            line in r"[0-9]{1,3} [0-9]{1,2} [0-9]{1,2}:[0-9]{1,12} /[a-z\\0-9/]{0,9} /[a-z\\0-9/]{0,9} [a-z,]{0,9} (- )?[a-z0-9 \\]{0,20}\n"
        ) {
            let _ = Table::parse(line.as_bytes()).covering(Path::new("/a/b"));
        }

        #[test]
        fn every_point_covers_itself_whatever_its_bytes(name in prop::collection::vec(1u8.., 1..20)) {
            let name: Vec<u8> = name.into_iter().filter(|byte| !b"/.".contains(byte)).collect();
            prop_assume!(!name.is_empty());
            let mut escaped = Vec::new();
            for byte in &name {
                match byte {
                    b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
                    _ => escaped.push(*byte),
                }
            }
            let mut text = b"1 0 8:0 / / rw - a a rw\n2 1 8:1 / /".to_vec();
            text.extend(&escaped);
            text.extend(b" rw - a a rw\n");
            let point = Path::new("/").join(std::ffi::OsStr::from_bytes(&name));
            prop_assert_eq!(Table::parse(&text).covering(&point).unwrap().id, 2);
        }

        /// One damaged line does not blind us to the others.
        #[test]
        fn lines_beside_edited_ones_are_understood_as_before(
            index in 0..7_usize,
            odd in edited(TABLE.split(|byte| *byte == b'\n').nth(4).unwrap()),
        ) {
            let mut lines: Vec<&[u8]> = TABLE.split(|byte| *byte == b'\n').collect();
            lines.insert(index, &odd);
            let table = Table::parse(&lines.join(&b'\n'));
            let _ = table.covering(Path::new("/mnt/odd name\\\tx/a"));
            for entry in Table::parse(TABLE).entries {
                prop_assert!(table.entries.contains(&entry), "{:?}", entry);
            }
        }

        #[test]
        fn every_field_is_read_as_the_kernel_wrote_it(
            root in prop::collection::vec(1u8.., 0..20),
            source in prop::collection::vec(1u8.., 1..20),
        ) {
            // What the kernel escapes besides, for readers that split at it.
            let escape = |bytes: &[u8]| {
                let mut escaped = Vec::new();
                for byte in bytes {
                    match byte {
                        b' ' | b'\t' | b'\n' | b'\\' | b'#' => {
                            escaped.extend(format!("\\{byte:03o}").bytes());
                        }
                        _ => escaped.push(*byte),
                    }
                }
                escaped
            };
            let line = [
                b"9 1 8:1 /".as_slice(), &escape(&root), b" /m rw,x shared:1 - a ",
                &escape(&source), b" rw,y",
            ];
            let table = Table::parse(&line.concat());
            let entry = &table.entries[0];
            let root = [b"/".as_slice(), &root].concat();
            prop_assert_eq!(entry.root.as_os_str().as_bytes(), &root[..]);
            prop_assert_eq!(&entry.source, &String::from_utf8_lossy(&source));
            prop_assert_eq!(&entry.options, "rw,x,y");
        }
    }
}
