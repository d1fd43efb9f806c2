//! What a reader with the token may order from the page. The forms do nothing without the script, which
//! keeps the token in memory only; who may what is decided by the API alone.

use std::fmt::{Result as Written, Write};

use super::Scene;
use crate::health::claim::REASON_LIMIT;

pub(super) fn write(html: &mut String, scene: &Scene<'_>) -> Written {
    writeln!(
        html,
        "<section id=\"orders\" class=\"card\" aria-labelledby=\"orders-h\">\n<h2 id=\"orders-h\">Orders</h2>"
    )?;
    if scene.orders {
        write_forms(html)?;
    } else {
        writeln!(
            html,
            "<p>Orders are off: <code>control_token_file</code> is not set in the configuration.</p>"
        )?;
    }
    writeln!(html, "<p id=\"answer\" role=\"status\"></p>\n</section>")
}

fn write_forms(html: &mut String) -> Written {
    writeln!(
        html,
        "<noscript><p>Orders need scripts, or <code>dirkeeper mode set</code>, <code>mode release</code> and \
         <code>accept</code> in a terminal.</p></noscript>\n\
         <form class=\"js\" id=\"token-form\">\n\
         <label>Token of <code>control_token_file</code>: <input id=\"token\" type=\"password\" autocomplete=\"off\" \
         aria-describedby=\"token-note\"></label>\n\
         <span id=\"token-note\">Every order needs it. It is kept in this page's memory only, and gone with the page.</span>\n\
         </form>\n\
         <p class=\"js\"><button type=\"button\" data-order=\"probe\">Probe all directories now</button></p>\n\
         <form class=\"js\" id=\"mode-form\">\n<fieldset><legend>Mode of the bookie</legend>\n\
         <label>Order <select name=\"mode\"><option value=\"readOnly\">hold read-only</option>\
         <option value=\"writable\">hold writable</option><option value=\"\">release</option></select></label>\n\
         <label>because <input name=\"reason\" type=\"text\" maxlength=\"{REASON_LIMIT}\" autocomplete=\"off\"></label>\n\
         <button>Give the order</button>\n</fieldset>\n</form>"
    )
}
