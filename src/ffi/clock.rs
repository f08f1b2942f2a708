//! The clocks as the core wants them, and which boot of which machine they are of.

use std::fs;
use std::num::NonZeroU64;
use std::sync::OnceLock;

use libc::{CLOCK_REALTIME, clock_gettime, timespec};
use mortise_core::codec::{BootId, MachineId, Stamp};
use mortise_core::{Instant, Micros};
use redis_module::raw;

#[cfg(target_os = "linux")]
const BOOT_CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// Now, on the boot-time clock: since the machine started, suspension included.
pub(crate) fn now() -> Instant {
    let time = read(BOOT_CLOCK);
    Instant::from_millis(time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000)
}

/// Now, on the boot-time clock, in microseconds.
pub(crate) fn now_micros() -> u64 {
    micros(BOOT_CLOCK)
}

/// Now, on the wall clock.
pub(crate) fn wall() -> Micros {
    Micros(micros(CLOCK_REALTIME))
}

/// The wall clock when the server called the command that runs now, as far as it shows that (from Redis 7.2 on). Tokens need no better
/// one.
pub(crate) fn command_wall() -> Micros {
    // SAFETY: no arguments; a function that an older server lacks is null.
    match unsafe { raw::RedisModule_CachedMicroseconds } {
        // SAFETY: as above.
        Some(cached) => Micros(u64::try_from(unsafe { cached() }).unwrap_or(0)),
        None => wall(),
    }
}

/// Here and now, for bytes that leave or reach the process.
pub(crate) fn stamp() -> Stamp {
    stamp_at(now())
}

/// Here, and the moment `now`.
pub(crate) fn stamp_at(now: Instant) -> Stamp {
    Stamp {
        boot_id: BootId(boot_id()),
        machine: machine_id().map(MachineId),
        boot: now,
        wall_ms: wall().0 / 1_000,
    }
}

/// The processor time that this thread has used, in microseconds.
pub(crate) fn cpu_micros() -> u64 {
    micros(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn micros(clock: libc::clockid_t) -> u64 {
    let time = read(clock);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

fn read(clock: libc::clockid_t) -> timespec {
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec of our own. All clocks asked for exist, so the call does not fail.
    unsafe { clock_gettime(clock, &raw mut time) };
    time
}

/// Which boot-time clock it is: the kernel's id of this boot, and how far the clock of this process's time namespace (a container's,
/// say) is off. Of this process if the kernel has no id, so that no other clock is taken for this one.
fn boot_id() -> [u8; 16] {
    static BOOT_ID: OnceLock<[u8; 16]> = OnceLock::new();
    *BOOT_ID.get_or_init(|| {
        let Some(id) = kernel_boot_id() else {
            return (u128::from(wall().0) << 32 | u128::from(std::process::id())).to_be_bytes();
        };
        let id = match boot_clock_offset() {
            None => id,
            Some(offset) => uuid::Uuid::new_v5(&id, offset.as_bytes()),
        };
        id.into_bytes()
    })
}

fn kernel_boot_id() -> Option<uuid::Uuid> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    uuid::Uuid::parse_str(text.trim()).ok()
}

/// Seconds and nanoseconds by which the boot-time clock of this process is off the machine's; `None` if it is not.
fn boot_clock_offset() -> Option<String> {
    let offsets = fs::read_to_string("/proc/self/timens_offsets").ok()?;
    let line = offsets
        .lines()
        .find_map(|line| line.strip_prefix("boottime"))?;
    let offset = line.split_whitespace().collect::<Vec<_>>().join(" ");
    (offset != "0 0").then_some(offset)
}

/// Which machine this is, the same after a reboot: a hash of the id that it was installed with and of its name, because
/// machines made of one image may share the id. `None` where there is none, as in many containers.
fn machine_id() -> Option<NonZeroU64> {
    static MACHINE_ID: OnceLock<Option<NonZeroU64>> = OnceLock::new();
    *MACHINE_ID.get_or_init(|| {
        let id = fs::read_to_string("/etc/machine-id").ok()?;
        let id = uuid::Uuid::parse_str(id.trim()).ok()?;
        let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        // The id must not be disclosed to others.
        let hash = uuid::Uuid::new_v5(&id, format!("mortise {}", name.trim()).as_bytes());
        NonZeroU64::new(hash.as_u64_pair().0).filter(|_| !id.is_nil())
    })
}
