//! `strftime_now`: the engine's local time, in the C locale, from a time that is handed in.

use super::python::put;

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A moment on the wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Clock {
    year: i64,
    /// 1..=12
    month: i64,
    /// 1..=31
    day: i64,
    /// 1..=366
    day_of_year: i64,
    /// 0..=6, Sunday is 0
    weekday: i64,
    /// 0..86400
    second_of_day: i64,
}

impl Clock {
    /// The wall clock `offset_minutes` east of Greenwich. Years far outside the calendar saturate.
    pub(super) fn at(unix_s: i64, offset_minutes: i32) -> Self {
        // Keeps the arithmetic below far from overflow: about a million years either way.
        const LIMIT_S: i64 = 1 << 45;
        let local = unix_s.clamp(-LIMIT_S, LIMIT_S) + i64::from(offset_minutes) * 60;
        let days = local.div_euclid(86_400);
        // Days since 1 March 0000, in eras of 400 years (146097 days).
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * of_year + 2) / 153;
        let month = if shifted_month < 10 {
            shifted_month + 3
        } else {
            shifted_month - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let day_of_year = if month <= 2 {
            of_year - 306 + 1
        } else {
            of_year + 59 + i64::from(leap) + 1
        };
        Self {
            year,
            month,
            day: of_year - (153 * shifted_month + 2) / 5 + 1,
            day_of_year,
            weekday: (days + 4).rem_euclid(7),
            second_of_day: local.rem_euclid(86_400),
        }
    }

    /// Python's `datetime.strftime` with glibc's directives. An unknown one is written as it is.
    pub(super) fn strftime(self, format: &str) -> String {
        let mut out = String::with_capacity(format.len() + 16);
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut directive = chars.next();
            let flag = directive.filter(|c| matches!(c, '-' | '_' | '0' | '^' | '#'));
            if flag.is_some() {
                directive = chars.next();
            }
            self.write(&mut out, flag, directive);
        }
        out
    }

    fn write(self, out: &mut String, flag: Option<char>, directive: Option<char>) {
        let (hour, minute) = (self.second_of_day / 3600, self.second_of_day / 60 % 60);
        let twelve = (hour + 11) % 12 + 1;
        let start = out.len();
        match directive {
            Some('a') => out.push_str(self.day_name().get(..3).unwrap_or_default()),
            Some('A') => out.push_str(self.day_name()),
            Some('b' | 'h') => out.push_str(self.month_name().get(..3).unwrap_or_default()),
            Some('B') => out.push_str(self.month_name()),
            Some('c') => out.push_str(&self.strftime("%a %b %e %H:%M:%S %Y")),
            Some('C') => number(out, flag, self.year.div_euclid(100), 2, '0'),
            Some('d') => number(out, flag, self.day, 2, '0'),
            Some('D' | 'x') => out.push_str(&self.strftime("%m/%d/%y")),
            Some('e') => number(out, flag, self.day, 2, ' '),
            Some('f') => out.push_str("000000"),
            Some('F') => out.push_str(&self.strftime("%Y-%m-%d")),
            Some('H') => number(out, flag, hour, 2, '0'),
            Some('I') => number(out, flag, twelve, 2, '0'),
            Some('j') => number(out, flag, self.day_of_year, 3, '0'),
            Some('k') => number(out, flag, hour, 2, ' '),
            Some('l') => number(out, flag, twelve, 2, ' '),
            Some('m') => number(out, flag, self.month, 2, '0'),
            Some('M') => number(out, flag, minute, 2, '0'),
            Some('n') => out.push('\n'),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('r') => out.push_str(&self.strftime("%I:%M:%S %p")),
            Some('R') => out.push_str(&self.strftime("%H:%M")),
            Some('S') => number(out, flag, self.second_of_day % 60, 2, '0'),
            Some('t') => out.push('\t'),
            Some('T' | 'X') => out.push_str(&self.strftime("%H:%M:%S")),
            Some('u') => number(out, flag, (self.weekday + 6) % 7 + 1, 1, '0'),
            Some('U') => number(out, flag, (self.day_of_year + 6 - self.weekday) / 7, 2, '0'),
            Some('w') => number(out, flag, self.weekday, 1, '0'),
            Some('W') => {
                number(
                    out,
                    flag,
                    (self.day_of_year + 6 - (self.weekday + 6) % 7) / 7,
                    2,
                    '0',
                );
            }
            Some('y') => number(out, flag, self.year.rem_euclid(100), 2, '0'),
            Some('Y') => number(out, flag, self.year, 1, '0'),
            // `datetime.now()` has no time zone, so Python writes nothing.
            Some('z' | 'Z') => {}
            Some('%') => out.push('%'),
            other => {
                out.push('%');
                out.extend(flag);
                out.extend(other);
            }
        }
        if flag == Some('^') {
            let upper = out.split_off(start).to_uppercase();
            out.push_str(&upper);
        }
    }

    fn day_name(self) -> &'static str {
        name(&DAYS, self.weekday)
    }

    fn month_name(self) -> &'static str {
        name(&MONTHS, self.month - 1)
    }
}

fn name(names: &[&'static str], n: i64) -> &'static str {
    usize::try_from(n)
        .ok()
        .and_then(|n| names.get(n))
        .copied()
        .unwrap_or_default()
}

fn number(out: &mut String, flag: Option<char>, value: i64, width: usize, pad: char) {
    let pad = match flag {
        Some('-') => None,
        Some('_') => Some(' '),
        Some('0') => Some('0'),
        _ => Some(pad),
    };
    let text = value.to_string();
    if let Some(pad) = pad {
        for _ in text.len()..width {
            out.push(pad);
        }
    }
    put(out, format_args!("{text}"));
}
