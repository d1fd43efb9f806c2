//! The attacks, each from addresses of its own (127.0.1.1 and on), as one sentence of what was seen.

use std::io::ErrorKind;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::*;

pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) make: fn(&Target) -> String,
}

#[derive(Clone, Copy)]
pub(super) struct Target(pub(super) SocketAddr);

pub(super) const PLAIN: &[Attack] = &[
    Attack {
        name: "idle connections",
        make: idle,
    },
    Attack {
        name: "headers byte by byte",
        make: slowloris,
    },
    Attack {
        name: "a header of 100 MB",
        make: huge_header,
    },
    Attack {
        name: "bodies of 100 MB",
        make: huge_bodies,
    },
    Attack {
        name: "answers that nobody reads",
        make: slow_readers,
    },
    Attack {
        name: "paths that lead elsewhere",
        make: paths,
    },
    Attack {
        name: "orders with wrong tokens",
        make: wrong_tokens,
    },
    Attack {
        name: "other protocols",
        make: other_protocols,
    },
    Attack {
        name: "requests with two ends",
        make: smuggling,
    },
];

pub(super) const TLS: &[Attack] = &[
    Attack {
        name: "handshakes that stall",
        make: stalled_handshakes,
    },
    Attack {
        name: "no TLS on a TLS port",
        make: other_protocols,
    },
    Attack {
        name: "bytes of a handshake one by one",
        make: slowloris,
    },
];

const HUGE: usize = 100_000_000;

/// Longest time that one hostile client takes for what it does.
const ENOUGH: Duration = Duration::from_secs(20);

fn run(future: impl Future<Output = String>) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(future)
}

impl Target {
    /// A connection from the address of this number.
    async fn connect(self, from: usize) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        // What is not read waits at the other side.
        socket.set_recv_buffer_size(4096)?;
        let last = u8::try_from(1 + from % 250).unwrap();
        socket.bind(SocketAddr::from(([127, 0, 1, last], 0)))?;
        socket.connect(self.0).await
    }

    /// What is answered to these bytes, as the status code or the way it ended.
    async fn said(self, from: usize, bytes: &[u8]) -> String {
        let talk = async {
            let mut stream = self.connect(from).await?;
            let _ = stream.write_all(bytes).await;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok::<_, std::io::Error>(text(&answer))
        };
        match timeout(ENOUGH, talk).await {
            Ok(Ok(answer)) => {
                assert!(!answer.contains("root:"), "{answer}");
                let codes = answer.split("HTTP/1.1 ").skip(1);
                let codes: Vec<_> = codes.map(|rest| rest.get(..3).unwrap_or("?")).collect();
                if codes.is_empty() {
                    "closed".to_owned()
                } else {
                    codes.join(" ")
                }
            }
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionReset => "closed".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "nothing".to_owned(),
        }
    }

    /// What is answered to each of these at once, in their order.
    async fn said_all(self, all: Vec<Vec<u8>>) -> Vec<String> {
        let asked = all.into_iter().enumerate();
        let tasks: Vec<_> = asked
            .map(|(from, bytes)| tokio::spawn(async move { self.said(from, &bytes).await }))
            .collect();
        let mut said = Vec::new();
        for task in tasks {
            said.push(task.await.unwrap());
        }
        said
    }
}

/// As many connections as this process may have beside what else it does.
fn descriptors() -> usize {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    usize::try_from(most.saturating_sub(1000)).unwrap()
}

fn idle(target: &Target) -> String {
    run(async {
        let mut open = Vec::new();
        let mut refused = 0;
        for number in 0..descriptors().min(10_000) {
            match timeout(ENOUGH, target.connect(number)).await {
                Ok(Ok(stream)) => open.push(stream),
                _ => refused += 1,
            }
        }
        // The honest client goes on beside all of them.
        tokio::time::sleep(Duration::from_secs(2)).await;
        format!("{} connections, {refused} refused", open.len())
    })
}

fn slowloris(target: &Target) -> String {
    run(async {
        let mut open = Vec::new();
        for number in 0..500 {
            open.extend(
                timeout(ENOUGH, target.connect(number))
                    .await
                    .ok()
                    .and_then(Result::ok),
            );
        }
        let count = open.len();
        let header = b"GET /metrics HTTP/1.1\r\nX-Slow: aaaaaaaaa";
        for byte in header.chunks(1) {
            for stream in &mut open {
                let _ = stream.try_write(byte);
            }
            tokio::time::sleep(Duration::from_millis(75)).await;
        }
        format!("{count} connections")
    })
}

/// Writes these bytes until there are `HUGE` of them or nobody takes them; how many were taken.
async fn pour(target: &Target, head: &str, piece: &[u8]) -> usize {
    let Ok(mut stream) = target.connect(0).await else {
        return 0;
    };
    let mut taken = 0;
    let pouring = async {
        stream.write_all(head.as_bytes()).await?;
        while taken < HUGE {
            stream.write_all(piece).await?;
            taken += piece.len();
        }
        Ok::<_, std::io::Error>(())
    };
    let _ = timeout(ENOUGH, pouring).await;
    taken
}

fn huge_header(target: &Target) -> String {
    run(async {
        let piece = vec![b'x'; 64 << 10];
        let taken = pour(target, "GET / HTTP/1.1\r\nX: ", &piece).await;
        assert!(taken < 8 << 20, "{taken} bytes of a header are taken");
        let lines = b"A: b\r\n".repeat(10_000);
        let many = pour(target, "GET / HTTP/1.1\r\n", &lines).await;
        assert!(many < 8 << 20, "{many} bytes of headers are taken");
        "refused early".to_owned()
    })
}

fn huge_bodies(target: &Target) -> String {
    run(async {
        let piece = vec![b' '; 64 << 10];
        let chunk = [b"10000\r\n", &piece[..], b"\r\n"].concat();
        for (token, line) in [
            ("secret", "PUT /api/v1/mode"),
            ("wrong", "POST /api/v1/probe"),
        ] {
            let head = format!("{line} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n");
            let length = format!("{head}Content-Length: {HUGE}\r\n\r\n");
            let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
            for (head, piece) in [(length, &piece), (chunked, &chunk)] {
                let taken = pour(target, &head, piece).await;
                assert!(taken < 8 << 20, "{line}: {taken} bytes of a body are taken");
            }
        }
        let head = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: {HUGE}\r\n\r\n");
        let taken = pour(target, &head, &piece).await;
        assert!(taken < 8 << 20, "{taken} bytes of a body are taken");
        "refused early".to_owned()
    })
}

fn slow_readers(target: &Target) -> String {
    run(async {
        let requests = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100);
        let mut open = Vec::new();
        for number in 0..300 {
            let Ok(Ok(stream)) = timeout(ENOUGH, target.connect(number)).await else {
                continue;
            };
            let _ = stream.try_write(requests.as_bytes());
            open.push(stream);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        format!("{} clients with 100 questions each", open.len())
    })
}

fn paths(target: &Target) -> String {
    run(async {
        let mut seen = Vec::new();
        for path in [
            "/../../etc/passwd",
            "/%2e%2e/%2e%2e/etc/passwd",
            "/..%2f..%2fetc%2fpasswd",
            "//etc/passwd",
            "/api/v1/dirs//etc/passwd",
            "/api/v1/dirs/%2fetc%2fpasswd%00",
            "/metrics\0",
            "/metrics/../etc/passwd",
            "\\..\\etc\\passwd",
            "file:///etc/passwd",
            "http://127.0.0.1:1/metrics",
            "*",
            "",
        ] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            seen.push(format!(
                "{path:?} {}",
                target.said(0, request.as_bytes()).await
            ));
        }
        let connect = b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        seen.push(format!("CONNECT {}", target.said(0, connect).await));
        let expected = [
            "\"/../../etc/passwd\" 404",
            "\"/%2e%2e/%2e%2e/etc/passwd\" 404",
            "\"/..%2f..%2fetc%2fpasswd\" 404",
            "\"//etc/passwd\" 404",
            "\"/api/v1/dirs//etc/passwd\" 404",
            "\"/api/v1/dirs/%2fetc%2fpasswd%00\" 404",
            "\"/metrics\\0\" 400",
            "\"/metrics/../etc/passwd\" 404",
            "\"\\\\..\\\\etc\\\\passwd\" 400",
            "\"file:///etc/passwd\" 400",
            "\"http://127.0.0.1:1/metrics\" 200",
            "\"*\" 404",
            "\"\" 400",
            "CONNECT 404",
        ];
        assert_eq!(seen.join("\n"), expected.join("\n"));
        format!("{} paths", seen.len())
    })
}

fn wrong_tokens(target: &Target) -> String {
    run(async {
        let body = r#"{"mode":"readOnly","reason":"harm"}"#;
        let order = format!(
            "PUT /api/v1/mode HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secreT\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let last = order.replace("Host", "Connection: close\r\nHost");
        let orders = order.repeat(24) + &last;
        let mut refused = 0;
        for said in target.said_all(vec![orders.into_bytes(); 40]).await {
            assert!(said.split(' ').all(|code| code == "401"), "{said}");
            refused += said.split(' ').count();
        }
        assert_eq!(refused, 1_000);
        format!("{refused} refused")
    })
}

fn other_protocols(target: &Target) -> String {
    run(async {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
        let noise: Vec<u8> = (0..60_000_u32)
            .map(|it| it.wrapping_mul(97).to_le_bytes()[1])
            .collect();
        let kinds = [
            &preface[..],
            &hello[..],
            &noise[..],
            b"\0",
            b"SSH-2.0-x\r\n",
            b"EHLO a\r\n\r\n",
        ];
        let all = kinds.iter().flat_map(|bytes| vec![bytes.to_vec(); 20]);
        for said in target.said_all(all.collect()).await {
            let refused = ["400", "505", "431", "closed"];
            assert!(refused.contains(&said.as_str()), "{said}");
        }
        "refused".to_owned()
    })
}

fn smuggling(target: &Target) -> String {
    run(async {
        let inner = "POST /api/v1/probe HTTP/1.1\r\nHost: b\r\n\r\n";
        let head = "POST /api/v1/probe HTTP/1.1\r\nHost: a\r\n";
        let forms = [
            "Content-Length: 4\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 4",
            "Content-Length: 4\r\nContent-Length: 40",
            "Content-Length: 4, 40",
            "Transfer-Encoding: chunked, identity",
            "Transfer-Encoding : chunked",
            "Transfer-Encoding: xchunked",
            "Content-Length: +4",
        ];
        let request =
            |headers: &&str| format!("{head}{headers}\r\n\r\n0\r\n\r\n{inner}").into_bytes();
        let seen = target.said_all(forms.iter().map(request).collect()).await;
        for (headers, said) in forms.iter().zip(&seen) {
            // One answer: what is left is not read as a second request.
            assert_eq!(said.split(' ').count(), 1, "{headers}: {said}");
        }
        seen.join(" ")
    })
}

fn stalled_handshakes(target: &Target) -> String {
    run(async {
        let mut open = Vec::new();
        for number in 0..500 {
            if let Ok(Ok(stream)) = timeout(ENOUGH, target.connect(number)).await {
                let _ = stream.try_write(b"\x16\x03\x01\x02\x00\x01\x00");
                open.push(stream);
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        format!("{} connections", open.len())
    })
}
