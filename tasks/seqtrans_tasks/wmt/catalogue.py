"""What WMT14 trains, validates and tests on: where it lies, its checksums, its terms.

Addresses and names of members are those of tensorflow/datasets (``translate/wmt.py``) and sacreBLEU
(``dataset/__init__.py``). WMT gives no checksums: those of the training data, and the sizes, are
from tensorflow/datasets (``url_checksums/wmt13_translate.txt`` and ``wmt14_translate.txt``); those
of the test sets from sacreBLEU, which has MD5 only. The mirrors are dmlc/gluon-nlp's.
"""

from __future__ import annotations

from seqtrans.downloads import Download, File

WMT = "https://www.statmt.org"
MIRROR = "https://gluonnlp-numpy-data.s3-us-west-2.amazonaws.com/datasets/third_party_mirror"
TENSORFLOW = "tensorflow/datasets"
SACREBLEU = "sacreBLEU"
TERMS = (
    "free to use for research if you cite the WMT14 overview paper; for anything else ask the "
    f"owners of each corpus ({WMT}/wmt14/translation-task.html)"
)


def both(stem: str, *languages: str, folder: str = "", packed: str = "") -> dict[str, str]:
    """The members ``folder/stem.language`` of an archive, kept under their own names."""
    names = [f"{stem}.{language}{packed}" for language in languages]
    return {f"{folder}{name}": name for name in names}


def europarl(other: str) -> File:
    """The proceedings of the European Parliament, version 7."""
    return File(
        urls=(f"{WMT}/wmt13/training-parallel-europarl-v7.tgz",),
        checksum="sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        checksum_from=TENSORFLOW,
        size=657_632_379,
        members=both(f"europarl-v7.{other}-en", "en", other, folder="training/"),
    )


def common_crawl(other: str) -> File:
    """Text from web pages."""
    return File(
        urls=(
            f"{WMT}/wmt13/training-parallel-commoncrawl.tgz",
            f"{MIRROR}/training-parallel-commoncrawl-1c0ad85f0ebaf1d543acb009607205f5dae6627d.tgz",
        ),
        checksum="sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
        checksum_from=TENSORFLOW,
        size=918_311_367,
        members=both(f"commoncrawl.{other}-en", "en", other),
    )


def news_commentary(other: str) -> File:
    """Comments on the news, version 9."""
    return File(
        urls=(
            f"{WMT}/wmt14/training-parallel-nc-v9.tgz",
            f"{MIRROR}/training-parallel-nc-v9-c7ae7f50cd45c2f3014d78ddba25a4a8a851e27a.tgz",
        ),
        checksum="sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
        checksum_from=TENSORFLOW,
        size=80_418_416,
        members=both(f"news-commentary-v9.{other}-en", "en", other, folder="training/"),
    )


UNITED_NATIONS = File(
    urls=(f"{WMT}/wmt13/training-parallel-un.tgz",),
    checksum="sha256:29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
    checksum_from=TENSORFLOW,
    size=2_365_634_246,
    members=both("undoc.2000.fr-en", "en", "fr", folder="un/"),
)

GIGA = File(
    urls=(f"{WMT}/wmt10/training-giga-fren.tar",),
    checksum="sha256:3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
    checksum_from=TENSORFLOW,
    size=2_595_102_720,
    members=both("giga-fren.release2.fixed", "en", "fr", packed=".gz"),
)


def newstest2013(other: str) -> File:
    """The development set of the paper (Table 3). WMT13 has all languages as sources."""
    return File(
        urls=("https://statmt.org/wmt13/test.tgz",),
        checksum="md5:48eca5d02f637af44e85186847141f67",
        checksum_from=SACREBLEU,
        members={
            f"test/newstest2013-src.{language}.sgm": f"newstest2013-src.{language}.sgm"
            for language in ("en", other)
        },
    )


def newstest2014(other: str) -> File:
    """The test set (Table 2), all 3,003 pairs: not the 2,737 that were the official set."""
    pair = f"{other}en"
    return File(
        urls=("https://statmt.org/wmt14/test-full.tgz",),
        checksum="md5:a8cd784e006feb32ac6f3d9ec7eb389a",
        checksum_from=SACREBLEU,
        members={
            f"test-full/newstest2014-{pair}-{name}.sgm": f"newstest2014-{pair}-{name}.sgm"
            for name in ("src.en", f"ref.{other}")
        },
    )


EN_DE = Download(
    summary="WMT14 English-German: 4.5 million pairs, newstest2013, newstest2014 (3,003 pairs)",
    terms=TERMS,
    files=(
        newstest2013("de"),
        newstest2014("de"),
        news_commentary("de"),
        europarl("de"),
        common_crawl("de"),
    ),
)

EN_FR = Download(
    summary="WMT14 English-French: 36 million pairs, newstest2013, newstest2014 (3,003 pairs)",
    terms=TERMS,
    files=(
        newstest2013("fr"),
        newstest2014("fr"),
        news_commentary("fr"),
        europarl("fr"),
        common_crawl("fr"),
        UNITED_NATIONS,
        GIGA,
    ),
)
