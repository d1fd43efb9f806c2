//! Web configurations and what is said of them.

use std::fmt::Write;
use std::fs;

use super::*;

const HASH: &str = "$2y$04$T1VqPCG9UXzcIxEuO01HxOyrJFcOjZGtTAr52DsTC9x5x0O7C9WWS";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        folder.write("cert.pem", &made.cert.pem());
        folder.write("key.pem", &made.signing_key.serialize_pem());
        folder
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(self.0.path().join(name), private).unwrap();
    }

    fn read(&self, text: &str) -> (WebConfig, Problems) {
        self.write("web.yml", text);
        let path = self.0.path().join("web.yml");
        let (mut files, mut problems) = (Vec::new(), Problems::default());
        let mut layer = Layer::default();
        let value = super::super::value::Value::Path(path);
        let slot = super::super::layer::Slot::new(value, Place::Default);
        layer.set(Key::WebConfigFile, slot);
        let web = settle(&layer, &mut files, &mut problems);
        (web, problems.sorted())
    }

    /// What is wrong with it, without the folder.
    fn said(&self, text: &str) -> String {
        let (_, problems) = self.read(text);
        let folder = format!("{}/", self.0.path().display());
        problems.lines().replace(&folder, "")
    }
}

#[test]
fn the_whole_format_is_read() {
    let folder = Folder::new();
    let (web, problems) = folder.read(&format!(
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  min_version: TLS13\n\
         http_server_config:\n  http2: false\n  headers:\n    X-Frame-Options: sameorigin\n    X-XSS-Protection:\n\
         basic_auth_users:\n  prometheus: {HASH}\n"
    ));
    assert_eq!(problems.lines(), "");
    assert!(web.tls.is_some());
    assert_eq!(web.headers, [("X-Frame-Options", "sameorigin".to_owned())]);
    assert_eq!(web.users["prometheus"].0, HASH);
    assert!(!format!("{web:?}").contains("$2y$"));
}

/// Values are never repeated: one of them may be a password in the place of its hash.
#[test]
fn what_is_wrong_has_its_line_and_no_value() {
    let folder = Folder::new();
    let mut all = String::new();
    for text in [
        "tls_server_config:\n  certfile: x\n",
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: none.pem\n",
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: cert.pem\n",
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  max_version: TLS11\n",
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  client_auth_type: RequireAnyClientCert\n",
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  client_ca_file: cert.pem\n",
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  client_allowed_sans: [a]\n",
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]\n",
        "http_server_config:\n  http2: true\n  headers:\n    X-Frame-Options: all\n    Server: x\n",
        "basic_auth_users:\n  a: hunter2\n  'b:c': hunter2\n",
        "basic_auth_users: hunter2\n",
        "basic_auth_users:\n  a: $2y$31$T1VqPCG9UXzcIxEuO01HxOyrJFcOjZGtTAr52DsTC9x5x0O7C9WWS\n",
        "rate_limit:\n  interval: 1s\n",
        "basic_auth_user:\n  a: hunter2\n",
        "basic_auth_users:\n a: [hunter2\n",
    ] {
        let said = folder.said(text);
        assert!(
            !said.is_empty() && !said.contains("hunter2"),
            "{text}{said}"
        );
        writeln!(all, "{said}\n").unwrap();
    }
    insta::assert_snapshot!("wrong", all);
}

#[test]
fn files_of_secrets_that_everybody_can_read_are_told() {
    let folder = Folder::new();
    let open = |name: &str| {
        let path = folder.0.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    };
    open("key.pem");
    let said = folder.said("tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n");
    let expected = "web.yml:3: tls_server_config.key_file: everybody on this machine can read the private key in key.pem";
    assert!(said.contains(expected), "{said}");
}
