//! The text of a bookie's cookie, `current/VERSION`: which cluster and which bookie a directory
//! belongs to. Pure; the reading is done in `look`.

use crate::health::observation::Cookie;

/// The first layout in protobuf's text form; the one before has the bookie in its second line.
const FIRST_TEXT_FORM: u32 = 4;

/// What a cookie file says.
pub(super) fn parse(bytes: &[u8]) -> Cookie {
    match fields(&String::from_utf8_lossy(bytes)) {
        Ok((instance_id, bookie_host)) => Cookie::Present {
            instance_id,
            bookie_host,
        },
        Err(why) => Cookie::Unreadable(why),
    }
}

fn fields(text: &str) -> Result<(String, String), String> {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().trim();
    let layout: u32 = first
        .parse()
        .map_err(|_| format!("the first line is no layout version: {:.40}", first))?;
    if layout < FIRST_TEXT_FORM - 1 {
        return Err(format!("layout {layout} names no bookie"));
    }
    if layout < FIRST_TEXT_FORM {
        let host = lines.next().unwrap_or_default().trim();
        return if host.is_empty() {
            Err(format!(
                "layout {layout} without a bookie in its second line"
            ))
        } else {
            Ok((String::new(), host.to_owned()))
        };
    }
    let (mut instance, mut host) = (String::new(), None);
    for line in lines {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        match key.trim() {
            "bookieHost" => host = Some(unquoted(value)?),
            "instanceId" => instance = unquoted(value)?,
            _ => {}
        }
    }
    let host = host.filter(|host| !host.is_empty());
    Ok((instance, host.ok_or("no bookieHost")?))
}

/// A string of protobuf's text form: in quotes of either kind, with C's escapes.
fn unquoted(value: &str) -> Result<String, String> {
    let value = value.trim();
    let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    let Some(inner) = quoted('"').or_else(|| quoted('\'')) else {
        return Err(format!("a value without quotes: {value:.40}"));
    };
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'\\', [b'0'..=b'7', ..]) => {
                let octal = tail.iter().take(3).take_while(|byte| byte.is_ascii_digit());
                let (value, digits) = octal.fold((0_u32, 0), |(value, digits), byte| {
                    (value * 8 + u32::from(byte - b'0'), digits + 1)
                });
                bytes.push(u8::try_from(value & 0xff).unwrap_or_default());
                &tail[digits..]
            }
            (b'\\', [escaped, after @ ..]) => {
                bytes.push(match escaped {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    other => *other,
                });
                after
            }
            _ => {
                bytes.push(*first);
                tail
            }
        };
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::edited;

    const COOKIE: &str = "4\nbookieHost: \"10.0.0.3:3181\"\njournalDir: \"/j\"\nledgerDirs: \"1\\t/l\"\ninstanceId: \"6a3b\"\n";

    fn check(text: &str, expected: &str) {
        let found = match parse(text.as_bytes()) {
            Cookie::Present {
                instance_id,
                bookie_host,
            } => format!("{bookie_host} of {instance_id:?}"),
            Cookie::Unreadable(why) => why,
            other => format!("{other:?}"),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn all_layouts_in_use_are_understood() {
        check(
            "4\nbookieHost: \"10.0.0.3:3181\"\njournalDir: \"/j\"\nledgerDirs: \"1\\t/l\"\n\
             instanceId: \"6a3b\"\nindexDirs: \"1\\t/i\"\n",
            "10.0.0.3:3181 of \"6a3b\"",
        );
        check("5\n bookieHost : 'b\\303\\274\\\"k'\n", "bü\"k of \"\"");
        check("3\n10.0.0.3:3181\n/j\n/l\n", "10.0.0.3:3181 of \"\"");
    }

    #[test]
    fn what_is_wrong_is_said() {
        check("", "the first line is no layout version: ");
        check("hello\n", "the first line is no layout version: hello");
        check("2\nx\n", "layout 2 names no bookie");
        check("3\n", "layout 3 without a bookie in its second line");
        check("4\ninstanceId: \"a\"\n", "no bookieHost");
        check("4\nbookieHost: 10\n", "a value without quotes: 10");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes: Vec<u8>, rest: String) {
            let _ = parse(&bytes);
            let _ = parse(format!("4\nbookieHost: \"{rest}\"\n").as_bytes());
        }

        #[test]
        fn a_cookie_that_is_nearly_right_is_one_or_says_why_not(bytes in edited(COOKIE)) {
            if let Cookie::Unreadable(why) = parse(&bytes) {
                prop_assert!(!why.is_empty() && why.chars().count() < 120, "{}", why);
            }
        }

        #[test]
        fn a_written_name_is_read_back(name in "[^\\x00\r\n]{1,20}") {
            let escaped: String = name
                .bytes()
                .map(|byte| match byte {
                    b'"' | b'\\' => format!("\\{}", char::from(byte)),
                    b' '..=b'~' => char::from(byte).to_string(),
                    other => format!("\\{other:03o}"),
                })
                .collect();
            let cookie = format!("4\nbookieHost: \"{escaped}\"\n");
            let Cookie::Present { bookie_host, .. } = parse(cookie.as_bytes()) else {
                panic!("{cookie}");
            };
            prop_assert_eq!(bookie_host, name);
        }
    }
}
